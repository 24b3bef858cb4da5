//! The journal: a few named records that survive a killed app, each replaced atomically.
//!
//! The SDK keeps these kinds: its identity (`identity`, with the private key), its state in a round (`round`: the keys
//! of a secure aggregation session, the update that may be in transit), local tensors (`personal-…`, and the
//! personalized model for the app: `own-…`), privacy spending (`privacy`), the provenance of models (`provenance`),
//! published models for the app (`model-…`, and their list: `models`), a training in progress (`training`), bytes sent
//! and received (`traffic`), and refusals (`refusals`). A record `given` of an older SDK is not read. A journal must
//! not be rolled back: a participant that forgets its sent, signed or charged updates can be made to send another input
//! under the same masks, sign again or spend again. A journal stores bytes without interpreting them; an app may
//! implement its own, which must then prevent rollbacks as [`FileJournal`] does.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use zeroize::Zeroizing;

pub(crate) mod disk;
mod file;
mod files;
mod generation;
mod key;
pub(crate) mod locked;
mod sealed;

pub use file::FileJournal;
pub use files::JournalFiles;
pub(crate) use files::refuse_sealed;
pub use generation::{Generation, GenerationFile, GenerationStore};
pub use key::JournalKey;

/// Largest record that is read back: a model and an update of the maximum size, with a margin.
pub const MAX_RECORD_BYTES: u64 = 3 << 30;

/// Reasons a record could not be stored or read.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// The storage failed, for example because it is full.
    #[error("the journal could not {what}: {error}")]
    Io {
        /// The operation, with the path.
        what: String,
        #[source]
        error: Arc<io::Error>,
    },
    /// The bytes are damaged, or were not written by any version of the SDK.
    #[error(
        "the journal's record {name:?} cannot be used: {detail}; the journal it is in is lost: enrol anew with an empty journal \
         and a new token, never with a copy of an earlier one"
    )]
    Corrupt { name: String, detail: String },
    /// A newer SDK wrote the record.
    #[error("the journal's record {name:?} has version {version}, this SDK reads up to {newest}; update the app")]
    TooNew {
        name: String,
        version: u16,
        /// The newest version that can be read.
        newest: u16,
    },
    /// The ledger lacks releases that the journal knows were charged.
    #[error(
        "the journal's record {name:?} holds {held} releases where {charged} were charged: it was removed or rolled back, and \
         nobody knows what this participant has spent; enrol anew with an empty journal and a new token"
    )]
    RolledBack {
        name: String,
        /// Number of releases in it.
        held: u64,
        /// Required number.
        charged: u64,
    },
    /// The folder is not in its last state: its content may already have been sent.
    #[error(
        "the journal {folder} is not as this participant left it last: {detail}. It was restored from a copy, or changed, and \
         whoever goes on from it may send a second input under the same masks. Nothing was sent; enrol anew: remove {folder} \
         and {generation}, and start with a new token"
    )]
    Restored {
        folder: String,
        /// Location of its generation.
        generation: String,
        detail: String,
    },
    /// The key is missing, or is not the one that sealed the records.
    #[error(
        "the journal's record {name:?} does not open: {detail}; give the key that the journal was made with, or enrol anew \
         with an empty journal and a new token"
    )]
    Sealed { name: String, detail: String },
    /// A file must not lie in the journal's folder, where one copy would include both.
    #[error("{file} lies in the journal's folder {folder}, so a copy of one is a copy of the other; put it elsewhere")]
    Misplaced {
        /// The file of the key or of the generation.
        file: String,
        folder: String,
    },
    /// Another process uses the folder, or the file of its generation.
    #[error("the journal {0} is in use by another process; give each participant a folder of its own")]
    InUse(String),
}

impl JournalError {
    /// A storage failure; for apps' own journals.
    #[must_use]
    pub fn io(what: impl Into<String>, error: io::Error) -> Self {
        Self::Io { what: what.into(), error: Arc::new(error) }
    }

    pub(crate) fn corrupt(name: &str, detail: impl std::fmt::Display) -> Self {
        Self::Corrupt { name: name.to_owned(), detail: detail.to_string() }
    }
}

/// Stores named records. Names are 1 to 64 of `a-z`, `0-9` and `-`. Records hold secrets: only their owner may read
/// them.
pub trait Journal: Send + Sync {
    /// The record as last saved.
    ///
    /// # Errors
    /// [`JournalError`] if it exists but cannot be read.
    fn load(&self, name: &str) -> Result<Option<Zeroizing<Vec<u8>>>, JournalError>;

    /// Replaces the record; once this returns, it survives a crash. Until then the old one does.
    ///
    /// # Errors
    /// [`JournalError`]; the old record is intact, or the journal rejects writes until it is opened again.
    fn save(&self, name: &str, bytes: &[u8]) -> Result<(), JournalError>;

    /// The same for a record in two parts, which saves a copy of an update in journals that can write them in sequence.
    ///
    /// # Errors
    /// As for [`Journal::save`].
    fn save_parts(&self, name: &str, parts: [&[u8]; 2]) -> Result<(), JournalError> {
        match parts {
            [bytes, []] => self.save(name, bytes),
            parts => self.save(name, &Zeroizing::new(parts.concat())),
        }
    }

    /// A folder for models that are being downloaded, so that a restarted app resumes where it stopped. `None` keeps
    /// them in memory. Files there are unsealed, and verified before use.
    fn transfers(&self) -> Option<PathBuf> {
        None
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

    fn transfers(&self) -> Option<PathBuf> {
        (**self).transfers()
    }
}

/// Lost with the process: for tests, simulations and temporary participants.
#[derive(Default)]
pub struct MemoryJournal(Mutex<HashMap<String, Zeroizing<Vec<u8>>>>);

impl MemoryJournal {
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
