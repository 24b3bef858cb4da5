//! Files and folders for their owner's eyes alone, whatever the umask permits.
//!
//! On systems without Unix permissions these do what the plain functions do.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::path::Path;

/// Permissions of a file that is its owner's alone.
#[cfg(unix)]
const FILE: u32 = 0o600;
/// Permissions of a folder that is its owner's alone.
#[cfg(unix)]
const FOLDER: u32 = 0o700;

/// Makes the folder, and those above it that are missing, for its owner alone. One that is there is left as it is.
///
/// # Errors
/// What the disk says.
pub fn make_folder(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, FOLDER);
    if path.as_os_str().is_empty() { Ok(()) } else { builder.create(path) }
}

/// Options with which a file that is made is its owner's alone.
#[must_use]
pub fn options() -> OpenOptions {
    #[cfg_attr(not(unix), expect(unused_mut, reason = "there is nothing to set"))]
    let mut options = File::options();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, FILE);
    options
}

/// Takes a file or folder that is there from everybody but its owner; says whether anybody else had any right to it.
///
/// # Errors
/// It is somebody else's, and others may use it.
pub fn tighten(path: &Path) -> io::Result<bool> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let metadata = std::fs::metadata(path)?;
        let mode = metadata.permissions().mode() & 0o7777;
        if mode & 0o077 == 0 {
            return Ok(false);
        }
        let owners = if metadata.is_dir() { FOLDER } else { FILE };
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(owners)).map_err(|error| {
            let problem = format!(
                "{} may be used by others (mode {mode:04o}), and that cannot be changed: {error}; its owner must set mode {owners:04o}",
                path.display()
            );
            io::Error::new(error.kind(), problem)
        })?;
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

/// The same for what may not be there.
///
/// # Errors
/// As [`tighten`].
pub fn tighten_if_there(path: &Path) -> io::Result<bool> {
    match tighten(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        result => result,
    }
}
