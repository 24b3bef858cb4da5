//! What survives a killed app: a few named records, each replaced as a whole or not at all.
//!
//! The SDK keeps five kinds: who it is (`identity`, with its private key), where it is in its round (`round`: the keys of a
//! session of secure aggregation, the update that may be on its way), what stays at home (`personal-…`, and the device's own
//! model for the app: `own-…`), what was spent on privacy (`privacy`) and from which models an update was given (`given`). It must
//! not be rolled back: a participant that
//! forgets what it sent can be made to send another input under the same masks, one that forgets what it signed, to sign
//! again, and one that forgets what it spent, to spend it again. A journal stores bytes and does not look into them; an app may
//! bring its own, which then must keep that promise as [`FileJournal`] does.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use zeroize::Zeroizing;

mod disk;
mod file;
mod files;
mod generation;
mod key;
mod sealed;

pub use file::FileJournal;
pub use files::JournalFiles;
pub use generation::{Generation, GenerationFile, GenerationStore};
pub use key::JournalKey;

/// Largest record that is read back: a model and an update of the largest size, with room to spare.
pub const MAX_RECORD_BYTES: u64 = 3 << 30;

/// Why a record could not be kept or read.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// The storage failed, for example because it is full.
    #[error("the journal could not {what}: {error}")]
    Io {
        /// What was tried, with the path.
        what: String,
        /// Why it failed.
        #[source]
        error: Arc<io::Error>,
    },
    /// Bytes that no version of the SDK wrote, or that were damaged since.
    #[error(
        "the journal's record {name:?} cannot be used: {detail}; the journal it is in is lost: enrol anew with an empty journal \
         and a new token, never with a copy of an earlier one"
    )]
    Corrupt {
        /// The record.
        name: String,
        /// What is wrong.
        detail: String,
    },
    /// A record written by a newer SDK.
    #[error("the journal's record {name:?} has version {version}, this SDK reads up to {newest}; update the app")]
    TooNew {
        /// The record.
        name: String,
        /// Its version.
        version: u16,
        /// The newest that can be read.
        newest: u16,
    },
    /// Releases that the journal knows were charged are not in its ledger.
    #[error(
        "the journal's record {name:?} holds {held} releases where {charged} were charged: it was removed or rolled back, and \
         nobody knows what this participant has spent; enrol anew with an empty journal and a new token"
    )]
    RolledBack {
        /// The record.
        name: String,
        /// How many are in it.
        held: u64,
        /// How many there must be.
        charged: u64,
    },
    /// Inputs that the journal knows were given are not in the record of what they were given from.
    #[error(
        "the journal's record {name:?} knows of {held} inputs where {given} were given: it was removed or rolled back, and nobody \
         knows which models this participant has answered from; enrol anew with an empty journal and a new token"
    )]
    Forgotten {
        /// The record.
        name: String,
        /// Of how many it knows.
        held: u64,
        /// How many there must be.
        given: u64,
    },
    /// The folder is not as this participant left it last: what it held once may have been sent already.
    #[error(
        "the journal {folder} is not as this participant left it last: {detail}. It was restored from a copy, or changed, and \
         whoever goes on from it may send a second input under the same masks. Nothing was sent; enrol anew: remove {folder} \
         and {generation}, and start with a new token"
    )]
    Restored {
        /// The journal.
        folder: String,
        /// Where its generation is kept.
        generation: String,
        /// What is not as it was.
        detail: String,
    },
    /// The key that was given is not the one that the records were sealed with, or there is none.
    #[error(
        "the journal's record {name:?} does not open: {detail}; give the key that the journal was made with, or enrol anew \
         with an empty journal and a new token"
    )]
    Sealed {
        /// The record.
        name: String,
        /// Why.
        detail: String,
    },
    /// A file that must not lie in the journal's folder, where one copy would take both.
    #[error("{file} lies in the journal's folder {folder}, so a copy of one is a copy of the other; put it elsewhere")]
    Misplaced {
        /// The file of the key or of the generation.
        file: String,
        /// The journal.
        folder: String,
    },
    /// Another process holds the folder, or the file of its generation.
    #[error("the journal {0} is in use by another process; give each participant a folder of its own")]
    InUse(String),
}

impl JournalError {
    /// A failure of the storage; for journals of one's own.
    #[must_use]
    pub fn io(what: impl Into<String>, error: io::Error) -> Self {
        Self::Io { what: what.into(), error: Arc::new(error) }
    }

    pub(crate) fn corrupt(name: &str, detail: impl std::fmt::Display) -> Self {
        Self::Corrupt { name: name.to_owned(), detail: detail.to_string() }
    }
}

/// Keeps named records. Names are 1 to 64 of `a-z`, `0-9` and `-`. Records hold secrets: nobody else may read them.
pub trait Journal: Send + Sync {
    /// The record as it was last saved.
    ///
    /// # Errors
    /// [`JournalError`] if there is one and it cannot be read.
    fn load(&self, name: &str) -> Result<Option<Zeroizing<Vec<u8>>>, JournalError>;

    /// Replaces the record; once this returns, it survives a crash. Until then the old one does.
    ///
    /// # Errors
    /// [`JournalError`]; the old record is still there, or the journal takes nothing more until it is opened again.
    fn save(&self, name: &str, bytes: &[u8]) -> Result<(), JournalError>;

    /// The same for a record in two parts, which spares a journal that can write one behind the other a copy of an update.
    ///
    /// # Errors
    /// As [`Journal::save`].
    fn save_parts(&self, name: &str, parts: [&[u8]; 2]) -> Result<(), JournalError> {
        match parts {
            [bytes, []] => self.save(name, bytes),
            parts => self.save(name, &Zeroizing::new(parts.concat())),
        }
    }
}

impl<J: Journal + ?Sized> Journal for Arc<J> {
    fn load(&self, name: &str) -> Result<Option<Zeroizing<Vec<u8>>>, JournalError> {
        (**self).load(name)
    }

    fn save(&self, name: &str, bytes: &[u8]) -> Result<(), JournalError> {
        (**self).save(name, bytes)
    }

    fn save_parts(&self, name: &str, parts: [&[u8]; 2]) -> Result<(), JournalError> {
        (**self).save_parts(name, parts)
    }
}

/// Forgets everything with the process: for tests, simulations and throw-away participants.
#[derive(Default)]
pub struct MemoryJournal(Mutex<HashMap<String, Zeroizing<Vec<u8>>>>);

impl MemoryJournal {
    /// Empty.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl Journal for MemoryJournal {
    fn load(&self, name: &str) -> Result<Option<Zeroizing<Vec<u8>>>, JournalError> {
        Ok(self.0.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned())
    }

    fn save(&self, name: &str, bytes: &[u8]) -> Result<(), JournalError> {
        let record = Zeroizing::new(bytes.to_vec());
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), record);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_keeps_records() {
        let journal = MemoryJournal::new();
        assert!(journal.load("round").unwrap().is_none());
        journal.save("round", b"one").unwrap();
        journal.save("identity", b"me").unwrap();
        journal.save_parts("round", [b"t", b"wo"]).unwrap();
        assert_eq!(journal.load("round").unwrap().unwrap().as_slice(), b"two");
        assert_eq!(journal.load("identity").unwrap().unwrap().as_slice(), b"me");
    }
}
