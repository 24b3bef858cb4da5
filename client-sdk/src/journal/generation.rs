//! Which state of a journal is the latest, kept where a copy of the journal's folder does not take it along.
//!
//! Every record that is written makes a new [`Generation`]: a number, and an id that is drawn at random, so that two
//! states with one number are told apart. The record names the generation it makes and the one it follows. Writing goes in this order:
//! the record, then the generation in its [`GenerationStore`], and only then may anything leave that depends on the record.
//!
//! A folder opens if its newest record is the store's generation, or follows it immediately: the process died between the two,
//! and the store is brought up first. So what was sent was always sent from the state that the store named at that moment, and the states
//! that it names form one chain: from an earlier state, or from another branch of the same length, no folder opens.

use std::fs::{File, TryLockError};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use ring::digest;

use super::{JournalError, disk};

/// One state of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generation {
    /// How many records were written before; 0 for a journal that was just made.
    pub number: u64,
    /// Random: no two states have the same.
    pub id: [u8; 32],
}

impl Generation {
    /// Length of [`Self::to_bytes`].
    pub const BYTES: usize = 40;

    /// The number, little-endian, then the id.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.number.to_le_bytes());
        bytes[8..].copy_from_slice(&self.id);
        bytes
    }

    /// What [`Self::to_bytes`] gave.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        let ([a, b, c, d, e, f, g, h], mut id) = (*bytes.first_chunk().unwrap_or(&[0; 8]), [0; 32]);
        id.copy_from_slice(&bytes[8..]);
        Self { number: u64::from_le_bytes([a, b, c, d, e, f, g, h]), id }
    }
}

/// Keeps one journal's latest generation: in the device's key store, in hardware that only counts up, or in a file elsewhere.
/// Whoever can set back the journal must not be able to set back this as well.
pub trait GenerationStore: Send + Sync {
    /// The generation that was saved last; none if none ever was.
    ///
    /// # Errors
    /// [`JournalError`] if it cannot be read. A store that was emptied or lost must not say that none ever was.
    fn load(&self) -> Result<Option<Generation>, JournalError>;

    /// Keeps this one instead. Once this returns, it survives a crash.
    ///
    /// # Errors
    /// [`JournalError`]; the journal takes nothing more until it is opened again.
    fn save(&self, generation: &Generation) -> Result<(), JournalError>;

    /// What it is and where, for messages: "the file /…".
    fn place(&self) -> String;
}

/// A generation in a file, held by one process at a time. It protects against a journal's folder that is restored by itself: a copy that
/// takes folder and file together is not noticed.
pub struct GenerationFile {
    path: PathBuf,
    /// Locked as long as it is open.
    file: Mutex<File>,
}

/// Two places, written in turn, so that one is whole whenever the power goes. Each on a page of its own.
const SLOT_BYTES: u64 = 4096;
const SUM_BYTES: usize = 32;

impl GenerationFile {
    /// Opens the file or makes it.
    ///
    /// # Errors
    /// [`JournalError::InUse`] if another process holds it, [`JournalError::Io`] if it cannot be made.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, JournalError> {
        let path = path.into();
        let failed = |error| JournalError::io(format!("open its generation {}", path.display()), error);
        let file = disk::private_file().read(true).create(true).truncate(false).open(&path).map_err(failed)?;
        disk::sync_folder(disk::folder_of(&path)).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => Ok(Self { path, file: Mutex::new(file) }),
            Err(TryLockError::WouldBlock) => Err(JournalError::InUse(path.display().to_string())),
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }

    /// Where it is.
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

/// What is in a slot, if all of it was written.
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
