//! What survives a killed app: a few named records, each replaced as a whole or not at all.
//!
//! The SDK keeps five kinds: who it is (`identity`, with its private key), where it is in its round (`round`: the keys of a
//! session of secure aggregation, the update that may be on its way), what stays at home (`personal-…`, and the device's own
//! model for the app: `own-…`), what was spent on privacy (`privacy`) and from which models an update was given (`given`). It must not be rolled back: a participant that
//! forgets what it signed can be made to sign again, and one that forgets what it spent, to spend it again. A journal stores
//! bytes and does not look into them; an app may bring its own, for example over the device's keystore.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use zeroize::Zeroizing;

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
        "the journal's record {name:?} cannot be used: {detail}; restore it from a backup, or remove it and lose what it held"
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
         nobody knows what this participant has spent; restore it from a backup, or enrol anew with an empty journal"
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
         knows which models this participant has answered from; enrol anew with an empty journal"
    )]
    Forgotten {
        /// The record.
        name: String,
        /// Of how many it knows.
        held: u64,
        /// How many there must be.
        given: u64,
    },
    /// Another process holds the folder.
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
    /// [`JournalError`]; the old record is still there.
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

/// A folder that only its owner may enter, one file per record, held by one process at a time.
pub struct FileJournal {
    folder: PathBuf,
    /// Locked as long as the journal is open; the mutex keeps two writers of this process apart.
    lock: Mutex<File>,
}

impl FileJournal {
    /// Opens or makes the folder.
    ///
    /// # Errors
    /// [`JournalError::InUse`] if another process holds it, [`JournalError::Io`] if it cannot be made.
    pub fn open(folder: impl Into<PathBuf>) -> Result<Self, JournalError> {
        let folder = folder.into();
        let failed = |error| JournalError::io(format!("open {}", folder.display()), error);
        make_private_folder(&folder).map_err(failed)?;
        let lock = private_file().create(true).truncate(false).open(folder.join("lock")).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { folder, lock: Mutex::new(lock) }),
            Err(fs::TryLockError::WouldBlock) => Err(JournalError::InUse(folder.display().to_string())),
            Err(fs::TryLockError::Error(error)) => Err(failed(error)),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.record"))
    }
}

impl Journal for FileJournal {
    fn load(&self, name: &str) -> Result<Option<Zeroizing<Vec<u8>>>, JournalError> {
        let path = self.path(name);
        let failed = |error| JournalError::io(format!("read {}", path.display()), error);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let length = file.metadata().map_err(failed)?.len();
        if length > MAX_RECORD_BYTES {
            return Err(JournalError::corrupt(name, format!("it has {length} bytes, more than any record")));
        }
        let mut bytes = Zeroizing::new(Vec::with_capacity(usize::try_from(length).unwrap_or_default()));
        file.take(MAX_RECORD_BYTES).read_to_end(&mut bytes).map_err(failed)?;
        Ok(Some(bytes))
    }

    fn save(&self, name: &str, bytes: &[u8]) -> Result<(), JournalError> {
        self.save_parts(name, [bytes, &[]])
    }

    fn save_parts(&self, name: &str, parts: [&[u8]; 2]) -> Result<(), JournalError> {
        let _writing = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        let path = self.path(name);
        let draft = self.folder.join(format!("{name}.draft"));
        let failed = |error| JournalError::io(format!("write {}", path.display()), error);
        let written = write_durably(&draft, parts).and_then(|()| fs::rename(&draft, &path));
        if let Err(error) = written {
            // Half a draft is worth nothing and may be what filled the disk.
            let _ = fs::remove_file(&draft);
            return Err(failed(error));
        }
        sync_folder(&self.folder).map_err(failed)
    }
}

fn write_durably(path: &Path, parts: [&[u8]; 2]) -> io::Result<()> {
    let mut file = private_file().create(true).truncate(true).open(path)?;
    for part in parts {
        file.write_all(part)?;
    }
    file.sync_all()
}

#[cfg(unix)]
fn private_file() -> OpenOptions {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    options
}

#[cfg(not(unix))]
fn private_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true);
    options
}

#[cfg(unix)]
fn make_private_folder(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    // Also when it was there before: it is about to hold a private key.
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700))
}

#[cfg(not(unix))]
fn make_private_folder(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)
}

/// A rename survives a power cut only once its folder is on disk.
#[cfg(unix)]
fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

#[cfg(not(unix))]
fn sync_folder(_folder: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keeps_records(journal: &dyn Journal) {
        assert!(journal.load("round").unwrap().is_none());
        journal.save("round", b"one").unwrap();
        journal.save("identity", b"me").unwrap();
        journal.save("round", b"two").unwrap();
        assert_eq!(journal.load("round").unwrap().unwrap().as_slice(), b"two");
        assert_eq!(journal.load("identity").unwrap().unwrap().as_slice(), b"me");
    }

    #[test]
    fn memory_and_files_keep_records_alike() {
        keeps_records(&MemoryJournal::new());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/journal");
        keeps_records(&FileJournal::open(&path).unwrap());
        let reopened = FileJournal::open(&path).unwrap();
        assert_eq!(reopened.load("identity").unwrap().unwrap().as_slice(), b"me");
    }

    #[test]
    fn a_save_that_fails_leaves_the_old_record() {
        let folder = tempfile::tempdir().unwrap();
        let journal = FileJournal::open(folder.path()).unwrap();
        journal.save("round", b"old").unwrap();
        // A folder where the draft should go: the write fails, as on a full disk.
        fs::create_dir(folder.path().join("round.draft")).unwrap();
        let error = journal.save("round", b"new").unwrap_err();
        assert!(error.to_string().contains("could not write"), "{error}");
        assert_eq!(journal.load("round").unwrap().unwrap().as_slice(), b"old");
    }

    #[test]
    fn a_draft_left_by_a_crash_is_not_a_record() {
        let folder = tempfile::tempdir().unwrap();
        let journal = FileJournal::open(folder.path()).unwrap();
        fs::write(folder.path().join("round.draft"), b"half").unwrap();
        assert!(journal.load("round").unwrap().is_none());
        journal.save("round", b"whole").unwrap();
        assert_eq!(journal.load("round").unwrap().unwrap().as_slice(), b"whole");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_is_said_so() {
        let error = write_durably(Path::new("/dev/full"), [b"x", b""]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }

    #[test]
    fn two_participants_cannot_share_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        let first = FileJournal::open(folder.path()).unwrap();
        assert!(matches!(FileJournal::open(folder.path()), Err(JournalError::InUse(_))));
        drop(first);
        assert!(FileJournal::open(folder.path()).is_ok());
    }

    #[cfg(unix)]
    #[test]
    fn nobody_else_may_read_it() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let journal = FileJournal::open(folder.path()).unwrap();
        journal.save("identity", b"key").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(folder.path()), 0o700);
        assert_eq!(mode(&folder.path().join("identity.record")), 0o600);
    }
}
