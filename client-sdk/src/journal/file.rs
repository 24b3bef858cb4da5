//! A journal in a folder: one sealed file per record, and the folder's generation elsewhere.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use ring::rand::{SecureRandom as _, SystemRandom};
use zeroize::Zeroizing;

use super::generation::{Generation, GenerationStore};
use super::key::{JournalKey, no_randomness};
use super::locked::LockedFile;
use super::sealed::{self, Contents, FileKind, Head, WriteId};
use super::{Journal, JournalError, MAX_RECORD_BYTES, disk};
use recipe::digest::sha256;

/// An owner-only folder with one sealed file per record, used by one process at a time. It opens only in the last state
/// that its participant wrote: see [`Generation`].
pub struct FileJournal {
    folder: PathBuf,
    key: JournalKey,
    generation: Box<dyn GenerationStore>,
    state: Mutex<State>,
}

struct State {
    /// Locked while the journal is open.
    _lock: LockedFile,
    generation: Generation,
    contents: Contents,
    /// A record was written but perhaps not its generation; opening the journal again resolves which.
    is_in_doubt: bool,
}

/// The content of the folder.
struct Scan {
    newest: Option<Head>,
    /// Every record found.
    records: Contents,
}

impl FileJournal {
    /// Opens or creates the folder, whose records are sealed with `key`. `generation` is stored outside the folder, so
    /// that one copy cannot roll back both. [`super::JournalFiles`] uses files for all of this, for apps without a key
    /// store.
    ///
    /// An unsealed folder of an older version, with an empty `generation`, is accepted and sealed at once.
    ///
    /// # Errors
    /// [`JournalError::Restored`] if the folder is not in its last state, [`JournalError::Sealed`] if the key is wrong,
    /// [`JournalError::InUse`] if another process holds it, others if it cannot be created or read.
    pub fn open(
        folder: impl Into<PathBuf>,
        key: JournalKey,
        generation: impl GenerationStore + 'static,
    ) -> Result<Self, JournalError> {
        let folder = folder.into();
        let failed = |error| JournalError::io(format!("open {}", folder.display()), error);
        disk::make_private_folder(&folder).map_err(failed)?;
        let lock = disk::private_file().create(true).truncate(false).open(folder.join("lock")).map_err(failed)?;
        let lock = match LockedFile::lock(lock) {
            Ok(lock) => lock,
            Err(fs::TryLockError::WouldBlock) => return Err(JournalError::InUse(folder.display().to_string())),
            Err(fs::TryLockError::Error(error)) => return Err(failed(error)),
        };
        let scan = scan(&folder, &key)?;
        let (latest, contents) = settle(&folder, &generation, scan)?;
        let state = State { _lock: lock, generation: latest, contents, is_in_doubt: false };
        let journal = Self { folder, key, generation: Box::new(generation), state: Mutex::new(state) };
        journal.seal_what_is_clear()?;
        Ok(journal)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.record"))
    }

    /// Seals the unsealed records of an older version. Can be interrupted and resumed.
    fn seal_what_is_clear(&self) -> Result<(), JournalError> {
        let contents = self.state.lock().unwrap_or_else(PoisonError::into_inner).contents.clone();
        for (name, _) in contents.iter().filter(|(_, writing)| matches!(writing, WriteId::Clear(_))) {
            let record = read_clear(&self.path(name), name)?;
            self.save(name, &record)?;
        }
        Ok(())
    }

    fn restored(&self, detail: String) -> JournalError {
        restored(&self.folder, &*self.generation, detail)
    }

    fn check(&self, state: &State) -> Result<(), JournalError> {
        if state.is_in_doubt {
            let detail = "the last record could not be kept; open the journal again";
            return Err(JournalError::io(format!("go on in {}", self.folder.display()), io::Error::other(detail)));
        }
        Ok(())
    }
}

impl Journal for FileJournal {
    fn load(&self, name: &str) -> Result<Option<Zeroizing<Vec<u8>>>, JournalError> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.check(&state)?;
        let Some(writing) = state.contents.get(name) else { return Ok(None) };
        let path = self.path(name);
        let failed = |error| JournalError::io(format!("read {}", path.display()), error);
        let mut file = File::open(&path).map_err(failed)?;
        match sealed::read_head(&mut file, &self.key, name)? {
            FileKind::Sealed(head, opener) if *writing == WriteId::Sealed(head.generation.id) => {
                let left = file.metadata().and_then(|all| Ok(all.len().saturating_sub(file.stream_position()?)));
                sealed::read_pieces(&mut file, &opener, left.map_err(failed)?, name).map(Some)
            }
            FileKind::Sealed(..) | FileKind::Clear => Err(self.restored(another_writing(name))),
        }
    }

    fn save(&self, name: &str, bytes: &[u8]) -> Result<(), JournalError> {
        self.save_parts(name, [bytes, &[]])
    }

    fn save_parts(&self, name: &str, parts: [&[u8]; 2]) -> Result<(), JournalError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.check(&state)?;
        if self.generation.load()? != Some(state.generation) {
            return Err(self.restored(format!("{} has moved on without it", self.generation.place())));
        }
        let path = self.path(name);
        let failed = |error| JournalError::io(format!("write {}", path.display()), error);
        let next = following(state.generation).map_err(failed)?;
        let mut contents = state.contents.clone();
        contents.insert(name.to_owned(), WriteId::Sealed(next.id));
        let head = Head { generation: next, follows: state.generation.id, contents };
        let draft = self.folder.join(format!("{name}.draft"));
        let write = |file: &mut File| sealed::write(file, &self.key, name, &head, parts);
        disk::replace(&path, &draft, write).map_err(failed)?;
        // The record first, then the generation; anything that depends on the record is sent after both.
        state.is_in_doubt = true;
        disk::sync_folder(&self.folder).map_err(failed)?;
        self.generation.save(&next)?;
        (state.generation, state.contents, state.is_in_doubt) = (next, head.contents, false);
        Ok(())
    }

    /// `FOLDER.transfers`, next to the folder; all its files are sealed.
    fn transfers(&self) -> Option<PathBuf> {
        // Without a trailing slash, which would put it into the folder.
        let mut path = self.folder.components().as_path().as_os_str().to_owned();
        path.push(".transfers");
        Some(path.into())
    }
}

fn following(generation: Generation) -> io::Result<Generation> {
    let mut id = [0; 32];
    SystemRandom::new().fill(&mut id).map_err(|_| no_randomness())?;
    let number = generation.number.checked_add(1).ok_or_else(|| io::Error::other("its generations are used up"))?;
    Ok(Generation { number, id })
}

fn restored(folder: &Path, generation: &(impl GenerationStore + ?Sized), detail: String) -> JournalError {
    JournalError::Restored { folder: folder.display().to_string(), generation: generation.place(), detail }
}

fn another_writing(name: &str) -> String {
    format!("its record {name:?} is not the one that was written last")
}

/// Reads the head of every record, and removes leftovers of interrupted writes.
fn scan(folder: &Path, key: &JournalKey) -> Result<Scan, JournalError> {
    let failed = |error| JournalError::io(format!("read {}", folder.display()), error);
    let mut scan = Scan { newest: None, records: Contents::new() };
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("draft") if path.is_file() => fs::remove_file(&path).map_err(failed)?,
            Some("record") => {
                let mut file = File::open(&path).map_err(failed)?;
                let writing = match sealed::read_head(&mut file, key, name)? {
                    FileKind::Clear => WriteId::Clear(sha256(&read_clear(&path, name)?).0),
                    FileKind::Sealed(head, _) => {
                        let id = head.generation.id;
                        let newest = scan.newest.as_ref().map(|newest| newest.generation.number);
                        if newest.is_none_or(|newest| newest < head.generation.number) {
                            scan.newest = Some(*head);
                        }
                        WriteId::Sealed(id)
                    }
                };
                scan.records.insert(name.to_owned(), writing);
            }
            _ => {}
        }
    }
    Ok(scan)
}

/// The folder's generation, if it is the latest; updates a store that is one behind.
fn settle(
    folder: &Path,
    store: &impl GenerationStore,
    Scan { newest, records }: Scan,
) -> Result<(Generation, Contents), JournalError> {
    let refuse = |detail: String| Err(restored(folder, store, detail));
    match (newest, store.load()?) {
        (None, None) => {
            let first = following(Generation { number: 0, id: [0; 32] });
            let first = first.map_err(|error| JournalError::io(format!("open {}", folder.display()), error))?;
            let first = Generation { number: 0, ..first };
            store.save(&first)?;
            Ok((first, records))
        }
        (None, Some(kept)) if kept.number == 0 => Ok((kept, records)),
        (None, Some(kept)) => {
            refuse(format!("it has no sealed record, and {} says that {} were written", store.place(), kept.number))
        }
        (Some(head), None) => {
            let number = head.generation.number;
            refuse(format!("it is at generation {number}, and {} knows of none", store.place()))
        }
        (Some(head), Some(kept)) => {
            let is_next = kept.number.checked_add(1) == Some(head.generation.number) && head.follows == kept.id;
            if head.generation != kept && !is_next {
                let (found, latest) = (head.generation.number, kept.number);
                return refuse(format!("it is at generation {found}, and {} is at {latest}", store.place()));
            }
            let differs = |(name, writing): &(&String, &WriteId)| head.contents.get(*name) != Some(*writing);
            if let Some((name, _)) = records.iter().find(differs) {
                return refuse(another_writing(name));
            }
            if let Some(name) = head.contents.keys().find(|name| !records.contains_key(*name)) {
                return refuse(format!("its record {name:?} is missing"));
            }
            if is_next {
                store.save(&head.generation)?;
            }
            Ok((head.generation, head.contents))
        }
    }
}

fn read_clear(path: &Path, name: &str) -> Result<Zeroizing<Vec<u8>>, JournalError> {
    let failed = |error| JournalError::io(format!("read {}", path.display()), error);
    let file = File::open(path).map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    if length > MAX_RECORD_BYTES {
        return Err(JournalError::corrupt(name, format!("it has {length} bytes, more than any record")));
    }
    let mut bytes = Zeroizing::new(Vec::with_capacity(usize::try_from(length).unwrap_or_default()));
    file.take(MAX_RECORD_BYTES).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
