//! Where the real data lie.

use std::io::Write as _;
use std::path::{Path, PathBuf};

/// A folder of real data, in `$TRIBUTARY_DATA_DIR` or `../shared/data`; prints a message if there is none.
pub(crate) fn real_data(name: &str) -> Option<PathBuf> {
    #[expect(clippy::disallowed_methods, reason = "tests find their data through the environment")]
    let chosen = std::env::var_os("TRIBUTARY_DATA_DIR").map(PathBuf::from);
    let root = chosen.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data"));
    let folder = root.join(name);
    if folder.is_dir() {
        return Some(folder);
    }
    // The harness hides the `eprintln!` output of passing tests.
    let why = format!("no folder {}; set TRIBUTARY_DATA_DIR to test with real data", folder.display());
    let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
    None
}
