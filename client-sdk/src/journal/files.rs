//! A journal with its key and generation in files: for apps without a key store.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use super::generation::GenerationFile;
use super::key::JournalKey;
use super::sealed;
use super::{FileJournal, JournalError, disk};

/// The locations of a journal's three parts.
///
/// A copy of the folder alone cannot be read or continued. A copy of all three can be continued unnoticed: an app with
/// a key store should keep the key and the generation there ([`FileJournal::open`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalFiles {
    /// Folder of the records.
    pub folder: PathBuf,
    /// File of the key: 32 random bytes.
    pub key: PathBuf,
    /// File of the generation.
    pub generation: PathBuf,
}

impl JournalFiles {
    /// Key and generation next to the folder: `FOLDER.key` and `FOLDER.generation`.
    #[must_use]
    pub fn beside(folder: impl Into<PathBuf>) -> Self {
        let folder = folder.into();
        let beside = |ending: &str| {
            // Without a trailing slash, which would put them into the folder.
            let mut path = folder.components().as_path().as_os_str().to_owned();
            path.push(ending);
            PathBuf::from(path)
        };
        Self { key: beside(".key"), generation: beside(".generation"), folder }
    }

    /// Opens the journal, and creates missing parts.
    ///
    /// # Errors
    /// [`JournalError::Misplaced`] if a file lies in the folder, [`JournalError::Sealed`] if the key is missing but
    /// records exist; as for [`FileJournal::open`].
    pub fn open(&self) -> Result<FileJournal, JournalError> {
        let failed = |error| JournalError::io(format!("open {}", self.folder.display()), error);
        disk::make_private_folder(&self.folder).map_err(failed)?;
        let folder = self.folder.canonicalize().map_err(failed)?;
        for file in [&self.key, &self.generation] {
            let within = disk::folder_of(file);
            disk_folder(within).map_err(failed)?;
            if within.canonicalize().map_err(failed)?.starts_with(&folder) {
                let (file, folder) = (file.display().to_string(), folder.display().to_string());
                return Err(JournalError::Misplaced { file, folder });
            }
        }
        let key = if self.key.exists() { JournalKey::read(&self.key) } else { self.make_key() };
        FileJournal::open(&self.folder, key?, GenerationFile::open(&self.generation)?)
    }

    /// Makes a key unless records are sealed with another key.
    fn make_key(&self) -> Result<JournalKey, JournalError> {
        refuse_sealed(&self.folder, || format!("its key {} is not there", self.key.display()))?;
        JournalKey::make(&self.key)
    }
}

/// Rejects a folder with sealed records, for which a new key must not be made. A missing folder is accepted.
pub(crate) fn refuse_sealed(folder: &Path, detail: impl Fn() -> String) -> Result<(), JournalError> {
    let failed = |error| JournalError::io(format!("read {}", folder.display()), error);
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(failed)?,
    };
    for entry in entries {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|extension| extension == "record") && is_sealed(&path).map_err(failed)? {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            return Err(JournalError::Sealed { name, detail: detail() });
        }
    }
    Ok(())
}

/// Creates the folder if missing; leaves it unchanged otherwise.
fn disk_folder(folder: &Path) -> io::Result<()> {
    if folder.is_dir() { Ok(()) } else { disk::make_private_folder(folder) }
}

fn is_sealed(path: &Path) -> io::Result<bool> {
    let mut begin = Vec::with_capacity(sealed::MAGIC.len());
    File::open(path)?.take(sealed::MAGIC.len() as u64).read_to_end(&mut begin)?;
    Ok(begin == sealed::MAGIC)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::Journal as _;

    #[test]
    fn a_journal_is_made_on_first_use_and_reads_with_its_own_files_only() {
        let temporary = tempfile::tempdir().unwrap();
        let files = JournalFiles::beside(temporary.path().join("deep/journal/"));
        files.open().unwrap().save("identity", b"me").unwrap();
        for path in ["deep/journal.key", "deep/journal.generation", "deep/journal/identity.record"] {
            assert!(temporary.path().join(path).is_file(), "{path}");
        }
        assert_eq!(files.open().unwrap().load("identity").unwrap().unwrap().as_slice(), b"me");
        let key = fs::read(&files.key).unwrap();
        fs::remove_file(&files.key).unwrap();
        let error = files.open().map(|_| ()).unwrap_err();
        assert!(matches!(&error, JournalError::Sealed { .. }), "{error}");
        assert!(!files.key.exists(), "no other key is made in its place");
        fs::write(&files.key, [0; 32]).unwrap();
        assert!(matches!(files.open(), Err(JournalError::Sealed { .. })));
        fs::write(&files.key, key).unwrap();
        assert!(files.open().is_ok());
    }

    #[test]
    fn files_in_the_folder_itself_are_refused() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = temporary.path().join("journal");
        let beside = JournalFiles::beside(&folder);
        let key = JournalFiles { key: folder.join("key"), ..beside.clone() };
        let generation = JournalFiles { generation: folder.join("generation"), ..beside };
        for files in [key, generation] {
            assert!(matches!(files.open(), Err(JournalError::Misplaced { .. })));
        }
    }
}
