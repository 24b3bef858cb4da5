//! Where a device keeps its records: in memory, or in a folder that can be set back.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use client_sdk::journal::{FileJournal, Journal as _, JournalError, JournalFiles};
use zeroize::Zeroizing;

/// Records by their names.
pub(super) type Records = BTreeMap<String, Zeroizing<Vec<u8>>>;

/// Where a device keeps its records.
pub(super) enum DeviceJournal {
    Memory(Records),
    Folder(FolderJournal),
}

impl DeviceJournal {
    pub(super) fn open(&mut self) -> Result<(), JournalError> {
        match self {
            Self::Memory(_) => Ok(()),
            Self::Folder(journal) => journal.open(),
        }
    }

    pub(super) fn close(&mut self) {
        if let Self::Folder(journal) = self {
            journal.opened = None;
        }
    }

    pub(super) fn load(&self, name: &str) -> Result<Option<Zeroizing<Vec<u8>>>, JournalError> {
        match self {
            Self::Memory(records) => Ok(records.get(name).cloned()),
            Self::Folder(journal) => journal.opened.as_ref().map_or(Ok(None), |opened| opened.load(name)),
        }
    }

    pub(super) fn save(&mut self, name: &str, parts: [&[u8]; 2]) -> Result<(), JournalError> {
        match self {
            Self::Memory(records) => {
                records.insert(name.to_owned(), Zeroizing::new(parts.concat()));
                Ok(())
            }
            Self::Folder(journal) => journal.opened.as_ref().map_or(Ok(()), |opened| opened.save_parts(name, parts)),
        }
    }

    pub(super) fn copy_at(&self, action: u64) {
        if let Self::Folder(journal) = self
            && journal.copies.contains(&action)
        {
            // A copy that fails is ignored: the journal cannot be set back to it then.
            let _ = copy_folder(&journal.place.join("journal"), &journal.copy(action));
            if journal.copies_generation {
                let _ = fs::copy(journal.generation(), journal.copy(action).join("generation"));
            }
        }
    }

    /// Puts the copy of an earlier moment in the place of the journal; the file of its generation stays.
    pub(super) fn set_back(&self, to: u64) {
        if let Self::Folder(journal) = self
            && journal.copy(to).exists()
        {
            let (folder, kept) = (journal.place.join("journal"), journal.place.join("newest"));
            let _ = fs::remove_dir_all(&kept);
            if fs::rename(&folder, &kept).is_ok() {
                let _ = copy_folder(&journal.copy(to), &folder);
            }
            let generation = folder.join("generation");
            if generation.exists() && fs::copy(&generation, journal.generation()).is_ok() {
                let _ = fs::remove_file(generation);
            }
        }
    }
}

pub(super) struct FolderJournal {
    place: PathBuf,
    opened: Option<FileJournal>,
    /// The actions before which it is copied.
    copies: BTreeSet<u64>,
    /// Whether a copy includes the generation, against the rules for journals.
    copies_generation: bool,
}

impl FolderJournal {
    /// One at this place that is copied before these actions.
    pub(super) fn new(place: PathBuf, copies: BTreeSet<u64>, copies_generation: bool) -> Self {
        Self { place, opened: None, copies, copies_generation }
    }

    fn generation(&self) -> PathBuf {
        self.place.join("journal.generation")
    }

    fn copy(&self, action: u64) -> PathBuf {
        self.place.join(format!("copy-{action}"))
    }

    /// Opens it. If it refuses an old journal, the newest one is restored.
    fn open(&mut self) -> Result<(), JournalError> {
        let (folder, newest) = (self.place.join("journal"), self.place.join("newest"));
        let made = fs::create_dir_all(&self.place);
        made.map_err(|error| JournalError::io(format!("make {}", self.place.display()), error))?;
        let opened = match JournalFiles::beside(&folder).open() {
            Err(JournalError::Restored { .. }) if newest.exists() => {
                let replaced = fs::remove_dir_all(&folder).and_then(|()| fs::rename(&newest, &folder));
                replaced.map_err(|error| JournalError::io("be replaced".to_owned(), error))?;
                JournalFiles::beside(&folder).open()?
            }
            opened => opened?,
        };
        self.opened = Some(opened);
        Ok(())
    }
}

fn copy_folder(from: &Path, to: &Path) -> std::io::Result<()> {
    let _ = fs::remove_dir_all(to);
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let path = entry?.path();
        if let Some(name) = path.file_name().filter(|_| path.is_file()) {
            fs::copy(&path, to.join(name))?;
        }
    }
    Ok(())
}
