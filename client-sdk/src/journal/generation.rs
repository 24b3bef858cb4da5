//! Identifies the latest state of a journal, and is kept outside the journal's folder.
//!
//! Every written record creates a new [`Generation`]: a number, and a random id that distinguishes states with the same
//! number. The record names its own generation and the preceding one. The order of writing is: the record, then the
//! generation in its [`GenerationStore`], and only then anything that depends on the record may be sent.
//!
//! A folder opens if its newest record has the store's generation, or follows it immediately: then the process died
//! between the two writes, and the store is updated first. So everything was sent from the state that the store named
//! at that moment, and these states form one chain: a folder in an earlier state, or on another branch of the same
//! length, does not open.

use std::fs::{File, TryLockError};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use ring::digest;

use super::locked::LockedFile;
use super::{JournalError, disk};

/// A state of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generation {
    /// Number of records written before; 0 for a new journal.
    pub number: u64,
    /// Random: unique to each state.
    pub id: [u8; 32],
}

impl Generation {
    /// Length of the array that [`Self::to_bytes`] returns.
    pub const BYTES: usize = 40;

    /// The number, little-endian, then the id.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.number.to_le_bytes());
        bytes[8..].copy_from_slice(&self.id);
        bytes
    }

    /// The generation that [`Self::to_bytes`] encoded.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        let ([a, b, c, d, e, f, g, h], mut id) = (*bytes.first_chunk().unwrap_or(&[0; 8]), [0; 32]);
        id.copy_from_slice(&bytes[8..]);
        Self { number: u64::from_le_bytes([a, b, c, d, e, f, g, h]), id }
    }
}

/// Stores a journal's latest generation: in the device's key store, in a hardware counter, or in a file elsewhere. A
/// party that can roll back the journal must not be able to roll back this too.
pub trait GenerationStore: Send + Sync {
    /// The last saved generation; `None` before the first save.
    ///
    /// # Errors
    /// [`JournalError`] if it cannot be read. An emptied or lost store must not report `None`.
    fn load(&self) -> Result<Option<Generation>, JournalError>;

    /// Replaces the stored generation. Once this returns, it survives a crash.
    ///
    /// # Errors
    /// [`JournalError`]; the journal rejects writes until it is opened again.
    fn save(&self, generation: &Generation) -> Result<(), JournalError>;

    /// Kind and location, for messages: "the file /…".
    fn place(&self) -> String;
}

/// A generation in a file, used by one process at a time. Detects a journal's folder that is restored alone, but not a
/// copy that includes this file.
pub struct GenerationFile {
    path: PathBuf,
    /// Locked while it is open.
    file: Mutex<LockedFile>,
}

/// Two slots, written alternately, so that one is intact after a power cut. Each has its own page.
const SLOT_BYTES: u64 = 4096;
const SUM_BYTES: usize = 32;

impl GenerationFile {
    /// Opens or creates the file.
    ///
    /// # Errors
    /// [`JournalError::InUse`] if another process uses it, [`JournalError::Io`] if it cannot be created.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, JournalError> {
        let path = path.into();
        let failed = |error| JournalError::io(format!("open its generation {}", path.display()), error);
        let file = disk::private_file().read(true).create(true).truncate(false).open(&path).map_err(failed)?;
        disk::sync_folder(disk::folder_of(&path)).map_err(failed)?;
        match LockedFile::lock(file) {
            Ok(file) => Ok(Self { path, file: Mutex::new(file) }),
            Err(TryLockError::WouldBlock) => Err(JournalError::InUse(path.display().to_string())),
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl GenerationStore for GenerationFile {
    fn load(&self) -> Result<Option<Generation>, JournalError> {
        let failed = |error| JournalError::io(format!("read its generation {}", self.path.display()), error);
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let is_empty = file.metadata().map_err(failed)?.len() == 0;
        let mut slots = [None; 2];
        for (slot, at) in slots.iter_mut().zip([0, SLOT_BYTES]) {
            *slot = read_slot(&mut file, at).map_err(failed)?;
        }
        match slots.into_iter().flatten().max_by_key(|generation| generation.number) {
            None if !is_empty => Err(failed(io::Error::new(io::ErrorKind::InvalidData, "it was damaged"))),
            found => Ok(found),
        }
    }

    fn save(&self, generation: &Generation) -> Result<(), JournalError> {
        let failed = |error| JournalError::io(format!("write its generation {}", self.path.display()), error);
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = generation.to_bytes();
        let slot = [&bytes[..], sum(&bytes).as_ref()].concat();
        let written = file
            .seek(SeekFrom::Start(generation.number % 2 * SLOT_BYTES))
            .and_then(|_| file.write_all(&slot))
            .and_then(|()| file.sync_all());
        written.map_err(failed)
    }

    fn place(&self) -> String {
        format!("the file {}", self.path.display())
    }
}

/// The content of a slot, if it was written completely.
fn read_slot(file: &mut File, at: u64) -> io::Result<Option<Generation>> {
    let mut slot = Vec::with_capacity(Generation::BYTES + SUM_BYTES);
    file.seek(SeekFrom::Start(at))?;
    file.take((Generation::BYTES + SUM_BYTES) as u64).read_to_end(&mut slot)?;
    let whole = slot.split_first_chunk().filter(|(bytes, found)| sum(bytes).as_ref() == *found);
    Ok(whole.map(|(bytes, _)| Generation::from_bytes(bytes)))
}

fn sum(bytes: &[u8; Generation::BYTES]) -> digest::Digest {
    digest::digest(&digest::SHA256, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generation(number: u64) -> Generation {
        Generation { number, id: [u8::try_from(number).unwrap(); 32] }
    }

    #[test]
    fn the_latest_comes_back_and_one_that_was_cut_off_leaves_the_one_before() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.generation");
        let store = GenerationFile::open(&path).unwrap();
        assert_eq!(store.load().unwrap(), None);
        for number in 0..5 {
            store.save(&generation(number)).unwrap();
            assert_eq!(store.load().unwrap(), Some(generation(number)));
        }
        drop(store);
        // The slot of 4, half written.
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[20] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(GenerationFile::open(&path).unwrap().load().unwrap(), Some(generation(3)));
        bytes[usize::try_from(SLOT_BYTES).unwrap() + 20] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        let error = GenerationFile::open(&path).unwrap().load().unwrap_err().to_string();
        assert!(error.contains("damaged"), "{error}");
    }

    #[test]
    fn one_process_holds_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.generation");
        let first = GenerationFile::open(&path).unwrap();
        assert!(matches!(GenerationFile::open(&path), Err(JournalError::InUse(_))));
        drop(first);
        assert!(GenerationFile::open(&path).is_ok());
    }
}
