//! A model download in progress: in memory, or in a file, so that a killed app resumes it.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use wire::participant::ModelRef;

use super::TransportError;
use crate::journal::disk::{make_private_folder, private_file};

/// The bytes that have arrived of a model file, from its start. They are not verified.
pub struct Download {
    place: Place,
    bytes: u64,
}

enum Place {
    Memory(Vec<u8>),
    File(PathBuf, File),
}

impl Download {
    /// One that is in memory and goes on after these bytes.
    #[must_use]
    pub fn in_memory(have: Vec<u8>) -> Self {
        Self { bytes: have.len() as u64, place: Place::Memory(have) }
    }

    /// A download into a file named by the model's digest. It resumes after the file's content. All other files in the folder are
    /// removed, since their models are obsolete.
    ///
    /// # Errors
    /// If the folder or the file cannot be made or read.
    pub fn in_file(folder: &Path, model: &ModelRef) -> io::Result<Self> {
        make_private_folder(folder)?;
        let path = folder.join(model.sha256.to_string());
        for entry in fs::read_dir(folder)? {
            let other = entry?.path();
            if other != path && other.is_file() {
                fs::remove_file(&other)?;
            }
        }
        let file = private_file().read(true).append(true).create(true).open(&path)?;
        let bytes = file.metadata()?.len();
        let mut download = Self { place: Place::File(path, file), bytes };
        if bytes > model.bytes {
            download.clear()?;
        }
        Ok(download)
    }

    /// How many bytes have arrived.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds the next bytes. To a file they are written before this returns, so that a dropped transfer has no pending
    /// writes. This is a copy to the system's cache, which is fast for few bytes.
    ///
    /// # Errors
    /// [`TransportError::Protocol`] if they cannot be written.
    pub fn append(&mut self, piece: &[u8]) -> Result<(), TransportError> {
        match &mut self.place {
            Place::Memory(have) => have.extend_from_slice(piece),
            Place::File(path, file) => {
                let written = file.write_all(piece);
                if let Err(error) = written {
                    let why = format!("the model could not be written to {}: {error}", path.display());
                    // It may hold a part of the piece.
                    self.bytes = file.metadata().map_or(self.bytes, |file| file.len());
                    return Err(TransportError::protocol(why));
                }
            }
        }
        self.bytes += piece.len() as u64;
        Ok(())
    }

    /// Forgets all bytes.
    ///
    /// # Errors
    /// If the file cannot be cut.
    pub fn clear(&mut self) -> io::Result<()> {
        match &mut self.place {
            Place::Memory(have) => have.clear(),
            Place::File(_, file) => file.set_len(0)?,
        }
        self.bytes = 0;
        Ok(())
    }

    /// Makes room for as many bytes in all.
    pub(super) fn reserve(&mut self, most: usize) {
        if let Place::Memory(have) = &mut self.place {
            have.reserve_exact(most.saturating_sub(have.len()));
        }
    }

    /// The bytes in memory; empty for a download into a file.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        match self.place {
            Place::Memory(have) => have,
            Place::File(..) => Vec::new(),
        }
    }

    /// The path of its file; `None` in memory.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match &self.place {
            Place::Memory(_) => None,
            Place::File(path, _) => Some(path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(digest: u8, bytes: u64) -> ModelRef {
        ModelRef { version: 1, sha256: wire::Digest([digest; 32]), bytes }
    }

    #[test]
    fn a_file_goes_on_where_it_stopped_and_others_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("transfers");
        let mut first = Download::in_file(&folder, &model(1, 6)).unwrap();
        first.append(b"abc").unwrap();
        drop(first);
        let mut again = Download::in_file(&folder, &model(1, 6)).unwrap();
        assert_eq!(again.bytes(), 3);
        again.append(b"def").unwrap();
        let path = again.path().unwrap().to_owned();
        assert_eq!(fs::read(&path).unwrap(), b"abcdef");
        assert_eq!(Download::in_file(&folder, &model(1, 5)).unwrap().bytes(), 0, "longer than the model: begun anew");
        let mut other = Download::in_file(&folder, &model(2, 6)).unwrap();
        assert!(!path.exists());
        other.append(b"xyz").unwrap();
        other.clear().unwrap();
        other.append(b"z").unwrap();
        assert_eq!((fs::read(other.path().unwrap()).unwrap(), other.bytes()), (b"z".to_vec(), 1));
    }

    #[cfg(unix)]
    #[test]
    fn only_the_owner_reads_it() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("transfers");
        let download = Download::in_file(&folder, &model(1, 6)).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&folder), mode(download.path().unwrap())), (0o700, 0o600));
    }
}
