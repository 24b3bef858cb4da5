//! Where the real data lie.

use std::path::{Path, PathBuf};

/// A folder of real data, in `$TRIBUTARY_DATA_DIR` or `../shared/data`; says so when there is none.
pub(crate) fn real_data(name: &str) -> Option<PathBuf> {
    #[expect(clippy::disallowed_methods, reason = "tests find their data through the environment")]
    let chosen = std::env::var_os("TRIBUTARY_DATA_DIR").map(PathBuf::from);
    let root = chosen.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data"));
    let folder = root.join(name);
    if folder.is_dir() {
        return Some(folder);
    }
    #[expect(clippy::print_stderr, reason = "a skipped test must be loud")]
    {
        eprintln!("SKIPPED: no folder {}; set TRIBUTARY_DATA_DIR to test with real data", folder.display());
    }
    None
}
