//! Owner-only files and folders that survive a power cut once written.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::Path;

#[cfg(unix)]
pub(crate) fn private_file() -> OpenOptions {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    options
}

#[cfg(not(unix))]
pub(crate) fn private_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true);
    options
}

#[cfg(unix)]
pub(crate) fn make_private_folder(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    // Even if it existed before: it is about to hold a private key.
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700))
}

#[cfg(not(unix))]
pub(crate) fn make_private_folder(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)
}

/// The folder that contains a file.
pub(super) fn folder_of(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Writes a file atomically, via `draft`.
pub(super) fn replace(path: &Path, draft: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let written = private_file().create(true).truncate(true).open(draft).and_then(|mut file| {
        write(&mut file)?;
        file.sync_all()
    });
    let written = written.and_then(|()| fs::rename(draft, path));
    if written.is_err() {
        // A partial draft is useless, and may have filled the disk.
        let _ = fs::remove_file(draft);
    }
    written
}

/// A rename survives a power cut only once its folder is flushed.
#[cfg(unix)]
pub(super) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

#[cfg(not(unix))]
pub(super) fn sync_folder(_folder: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_is_said_so() {
        use std::io::Write as _;
        let folder = tempfile::tempdir().unwrap();
        let (path, draft) = (folder.path().join("x"), folder.path().join("draft"));
        std::os::unix::fs::symlink("/dev/full", &draft).unwrap();
        let error = super::replace(&path, &draft, |file| file.write_all(b"x")).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
        assert!(!path.exists() && draft.symlink_metadata().is_err());
    }
}
