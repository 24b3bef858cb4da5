//! Joins names from elsewhere to folders: a name leads to an entry of its folder, and nowhere else.

use std::path::{Path, PathBuf};

use task_spec::is_name;

/// A name that is not an entry of a folder of ours.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} cannot be the name of a folder: 1 to 64 letters, digits, '-', '_' or '.' can, not of dots alone")]
pub struct BadName(String);

/// The entry of this name in a folder.
///
/// # Errors
/// [`BadName`].
pub fn join(folder: &Path, name: &str) -> Result<PathBuf, BadName> {
    if is_name(name) { Ok(folder.join(name)) } else { Err(BadName(name.to_owned())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn join_refuses_names_that_lead_elsewhere() {
        let folder = Path::new("/models");
        for name in ["digits", "a.b", ".hidden", "..data"] {
            assert_eq!(join(folder, name).unwrap(), folder.join(name));
        }
        for name in ["", ".", "..", "...", "/etc", "a/b", "../a", "a\\b", "a\0b", "a b", &"x".repeat(65)] {
            assert!(join(folder, name).is_err(), "{name:?}");
        }
    }
}
