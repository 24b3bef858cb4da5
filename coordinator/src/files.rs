//! Files that a coordinator makes at its first start: each is written aside and renamed, so that it is there whole or not
//! at all, whenever the process dies and wherever the disk ends.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// A file's whole content on disk, beside its place. Dropped, it stays there; the next [`Draft::write`] replaces it.
#[derive(Debug)]
pub(crate) struct Draft {
    path: PathBuf,
    place: PathBuf,
}

impl Draft {
    /// Writes `bytes` beside `place` and flushes them; makes the folder. `mode` are the file's permissions, less what the
    /// umask forbids.
    ///
    /// # Errors
    /// What the disk says.
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

    /// The draft that a process left which died before it kept it. It may be cut off.
    #[must_use]
    pub(crate) fn left(place: &Path) -> Option<Self> {
        let path = beside(place);
        path.exists().then(|| Self { path, place: place.to_owned() })
    }

    #[must_use]
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Gives the file its name, for good.
    ///
    /// # Errors
    /// What the disk says.
    pub(crate) fn keep(self) -> io::Result<()> {
        std::fs::rename(&self.path, &self.place)?;
        // A rename survives a power cut only once its folder is on disk.
        #[cfg(unix)]
        File::open(folder(&self.place))?.sync_all()?;
        Ok(())
    }
}

/// Makes a file that its owner alone may read.
///
/// # Errors
/// What the disk says.
pub(crate) fn write_new(place: &Path, bytes: &[u8]) -> io::Result<()> {
    Draft::write(place, bytes, 0o600)?.keep()
}

/// Makes a folder for its owner alone. One that is there is taken from others if a coordinator's data are in it; any other may
/// be somebody's home, and what is put into it is its owner's alone all the same.
///
/// # Errors
/// What the disk says.
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
