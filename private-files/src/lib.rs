//! Files and folders that only their owner can access, whatever the umask, and that survive a power cut.
//!
//! On systems without Unix permissions these equal the plain functions.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::path::Path;

/// Permissions of an owner-only file.
#[cfg(unix)]
const FILE: u32 = 0o600;
/// Permissions of an owner-only folder.
#[cfg(unix)]
const FOLDER: u32 = 0o700;

/// Creates the folder and missing parents for the owner only. Existing ones are unchanged.
///
/// # Errors
/// Those of the disk.
pub fn make_folder(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, FOLDER);
    if path.as_os_str().is_empty() { Ok(()) } else { builder.create(path) }
}

/// Flushes a folder to disk: what was created, renamed or removed in it survives a power cut only then. Systems without Unix
/// permissions do not open folders.
///
/// # Errors
/// Those of the disk.
pub fn flush_folder(path: &Path) -> io::Result<()> {
    #[cfg(unix)]
    File::open(if path.as_os_str().is_empty() { Path::new(".") } else { path })?.sync_all()?;
    #[cfg(not(unix))]
    let _ = path;
    Ok(())
}

/// Opens a file for reading if it is a regular one. Other files, such as a pipe without a writer, could block the reader for ever.
///
/// # Errors
/// Errors of the disk; `InvalidData` if it is not a regular file.
pub fn open_regular(path: &Path) -> io::Result<File> {
    must_be_regular(path, &std::fs::metadata(path)?)?;
    File::open(path)
}

/// Checks that a file to create or open for writing is a regular file or missing.
///
/// # Errors
/// As for [`open_regular`], except for a missing file.
pub fn regular_or_missing(path: &Path) -> io::Result<()> {
    match std::fs::metadata(path) {
        Ok(metadata) => must_be_regular(path, &metadata),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

fn must_be_regular(path: &Path, metadata: &std::fs::Metadata) -> io::Result<()> {
    match metadata.is_file() {
        true => Ok(()),
        false => Err(io::Error::new(io::ErrorKind::InvalidData, format!("{} is not a regular file", path.display()))),
    }
}

/// Options that create files for the owner only.
#[must_use]
pub fn options() -> OpenOptions {
    #[cfg_attr(not(unix), expect(unused_mut, reason = "there is nothing to set"))]
    let mut options = File::options();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, FILE);
    options
}

/// Whether root grants read access to one group only. Container platforms mount secrets so for
/// processes of another user (PostgreSQL takes its server key under the same rule).
#[cfg(unix)]
fn is_lent(owner: u32, mode: u32) -> bool {
    owner == 0 && mode & 0o037 == 0
}

/// Removes all permissions except the owner's from an existing file or folder; returns whether there were any. A file that is
/// not ours to change stays as it is if it is root's and only its group may read it.
///
/// # Errors
/// It belongs to another user, and others may access it.
pub fn tighten(path: &Path) -> io::Result<bool> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

        let metadata = std::fs::metadata(path)?;
        let mode = metadata.permissions().mode() & 0o7777;
        if mode & 0o077 == 0 {
            return Ok(false);
        }
        let owners = if metadata.is_dir() { FOLDER } else { FILE };
        if let Err(error) = std::fs::set_permissions(path, std::fs::Permissions::from_mode(owners)) {
            if metadata.is_file() && is_lent(metadata.uid(), mode) {
                return Ok(false);
            }
            let problem = format!(
                "{} may be used by others (mode {mode:04o}), and that cannot be changed: {error}; its owner must set mode {owners:04o}",
                path.display()
            );
            return Err(io::Error::new(error.kind(), problem));
        }
        tracing::warn!(
            path = %path.display(),
            "{} could be used by others (mode {mode:04o}) and is now its owner's alone",
            path.display()
        );
        Ok(true)
    }
    #[cfg(not(unix))]
    std::fs::metadata(path).map(|_| false)
}

/// The same for a file that may be missing.
///
/// # Errors
/// As for [`tighten`].
pub fn tighten_if_there(path: &Path) -> io::Result<bool> {
    match tighten(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        result => result,
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_or_folder_is_refused_without_waiting() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        assert!(std::process::Command::new("mkfifo").arg(at("pipe")).status().unwrap().success());
        std::fs::write(at("file"), "text").unwrap();
        std::os::unix::fs::symlink(at("file"), at("link")).unwrap();
        std::os::unix::fs::symlink(at("pipe"), at("link to the pipe")).unwrap();
        for name in ["pipe", "link to the pipe", "."] {
            assert_eq!(open_regular(&at(name)).unwrap_err().kind(), io::ErrorKind::InvalidData, "{name}");
            assert_eq!(regular_or_missing(&at(name)).unwrap_err().kind(), io::ErrorKind::InvalidData, "{name}");
        }
        for name in ["file", "link"] {
            open_regular(&at(name)).unwrap();
            regular_or_missing(&at(name)).unwrap();
        }
        assert_eq!(open_regular(&at("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
        regular_or_missing(&at("none")).unwrap();
    }

    #[test]
    fn root_lends_to_one_group_for_reading_only() {
        for mode in [0o400, 0o440, 0o600, 0o640, 0o2440] {
            assert!(is_lent(0, mode), "{mode:04o}");
            assert!(!is_lent(1000, mode), "{mode:04o}");
        }
        for mode in [0o444, 0o460, 0o450, 0o441, 0o604, 0o660, 0o644] {
            assert!(!is_lent(0, mode), "{mode:04o}");
        }
    }
}
