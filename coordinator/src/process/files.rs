//! Files created at a coordinator's first start: each is written to a draft and renamed, so that it exists completely or not at all, even
//! after a crash or on a full disk.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// A draft next to the file's final path, complete on disk. If dropped, it stays; the next [`Draft::write`] replaces it.
#[derive(Debug)]
pub(crate) struct Draft {
    path: PathBuf,
    place: PathBuf,
}

impl Draft {
    /// Writes `bytes` to a file next to `place` and flushes them; creates the folder. `mode` are the file's permissions, before the umask.
    ///
    /// # Errors
    /// The file system's errors.
    pub(crate) fn write(place: &Path, bytes: &[u8], mode: u32) -> io::Result<Self> {
        let draft = Self { path: beside(place), place: place.to_owned() };
        store::private::make_folder(folder(place))?;
        match std::fs::remove_file(&draft.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, mode);
        #[cfg(not(unix))]
        let _ = mode;
        let mut file = options.open(&draft.path)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        Ok(draft)
    }

    /// The possibly incomplete draft of a process that died before renaming it.
    #[must_use]
    pub(crate) fn left(place: &Path) -> Option<Self> {
        let path = beside(place);
        path.exists().then(|| Self { path, place: place.to_owned() })
    }

    #[must_use]
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Renames the draft to the file, durably.
    ///
    /// # Errors
    /// The file system's errors.
    pub(crate) fn keep(self) -> io::Result<()> {
        std::fs::rename(&self.path, &self.place)?;
        store::private::flush_folder(folder(&self.place))
    }
}

/// Creates a file readable only by its owner.
///
/// # Errors
/// The file system's errors.
pub(crate) fn write_new(place: &Path, bytes: &[u8]) -> io::Result<()> {
    Draft::write(place, bytes, 0o600)?.keep()
}

/// Waits for the exclusive lock of this file, created if missing; the lock ends when the file is dropped.
///
/// # Errors
/// The file system's errors.
pub(crate) fn alone(lock: &Path) -> io::Result<File> {
    store::private::make_folder(folder(lock))?;
    let file = store::private::options().write(true).create(true).truncate(false).open(lock)?;
    file.lock()?;
    Ok(file)
}

/// Creates a folder readable only by its owner. Restricts an existing folder if it holds a coordinator's data. Any other may be a home
/// folder, in which new files are still readable only by their owner.
///
/// # Errors
/// The file system's errors.
pub fn make_private_folder(folder: &Path) -> io::Result<()> {
    store::private::make_folder(folder)?;
    let is_ours = folder.join("coordinator.db").exists() && folder.join("blobs").exists();
    if is_ours { store::private::tighten(folder).map(drop) } else { Ok(()) }
}

fn beside(place: &Path) -> PathBuf {
    let mut name = place.file_name().map_or_else(OsString::new, ToOwned::to_owned);
    name.push(".draft");
    place.with_file_name(name)
}

fn folder(place: &Path) -> &Path {
    place.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
