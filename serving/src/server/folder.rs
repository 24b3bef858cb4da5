//! The versions of a model on disk, which remain available after a restart or without a coordinator.
//!
//! `MODELS/NAME/VERSION/model.safetensors` is a version, and `record.json` in the same folder identifies its file. A
//! version appears by renaming its complete folder. `MODELS/NAME/state.json` records the version in use. Versions of a
//! former task with the same name are in `MODELS/NAME/.former-TASK`.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use client_sdk::models::Architecture;
use recipe::digest::sha256;
use serde::{Deserialize, Serialize};
use task_spec::TableSpec;
use wire::audit::AuditKey;
use wire::provenance::{Origin, SignedProvenance};
use wire::{Digest, TaskId};

use crate::named_folder::{self, BadName};

/// A version's file.
pub(crate) const MODEL: &str = "model.safetensors";
const RECORD: &str = "record.json";
const STATE: &str = "state.json";
/// Backup of an unreadable state file.
const DAMAGED: &str = "state.damaged.json";
/// Name prefix of a folder whose version is incomplete.
const INCOMING: &str = ".incoming-";
/// Name prefix of the folder of a former task's versions.
const FORMER: &str = ".former-";
/// Maximum size of a record or state file.
const TEXT_MAX: u64 = 1 << 20;

/// Metadata of a version, written when it was downloaded.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) task: TaskId,
    pub(crate) sha256: Digest,
    /// Kind and sizes of the model, if the task has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) architecture: Option<Architecture>,
    /// The columns of a table that the model takes, if the task names them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) table: Option<TableSpec>,
    /// Provenance record of the version, signed by its coordinator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) provenance: Option<SignedProvenance>,
    /// It follows a restored version whose file the coordinator has deleted, and replaces that version.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) follows_restored: bool,
}

impl Record {
    /// Whether it is activated immediately, replacing the version in use.
    fn goes_back(&self, origin: Option<Origin>) -> bool {
        self.follows_restored || origin == Some(Origin::Restored)
    }
}

/// The versions in use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct State {
    pub(crate) stable: Option<u32>,
    pub(crate) previous: Option<u32>,
    /// Versions that were rolled back.
    pub(crate) refused: BTreeSet<u32>,
    /// The key that signed the first record of the model. Later records must be signed by it.
    pub(crate) key: Option<AuditKey>,
    /// The task of the versions, once a record has named it.
    pub(crate) task: Option<TaskId>,
}

/// A version that was read and matches its record.
pub(crate) struct Verified {
    pub(crate) file: Vec<u8>,
    pub(crate) sha256: Digest,
    pub(crate) architecture: Option<Architecture>,
    pub(crate) table: Option<TableSpec>,
    pub(crate) task: Option<TaskId>,
    /// Whether its record marks it as restored, or as following a restored version.
    pub(crate) is_restored: bool,
}

/// Why a version on disk is not used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unusable {
    #[error(transparent)]
    Name(#[from] BadName),
    #[error("cannot read {path}: {source}")]
    Read { path: PathBuf, source: io::Error },
    #[error("{0} is no record of a version: {1}")]
    Record(PathBuf, String),
    #[error("the file has the sha256 {found}, and its record says {expected}")]
    Digest { found: Digest, expected: Digest },
    #[error("its signed record: {0}")]
    Provenance(String),
}

/// The folder of a model.
#[derive(Clone, Debug)]
pub(crate) struct ModelFolder(PathBuf);

impl ModelFolder {
    /// The folder of this model among all.
    ///
    /// # Errors
    /// The name would lead elsewhere.
    pub(crate) fn new(models: &Path, name: &str) -> Result<Self, BadName> {
        named_folder::join(models, name).map(Self)
    }

    /// Numbers of the existing versions, newest first. Ignores names that are not numbers.
    pub(crate) fn versions(&self) -> io::Result<Vec<u32>> {
        let entries = match std::fs::read_dir(&self.0) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut versions = BTreeSet::new();
        for entry in entries {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|name| name.parse::<u32>().ok().filter(|one| one.to_string() == name));
            versions.extend(number.filter(|number| self.file(*number).is_file()));
        }
        Ok(versions.into_iter().rev().collect())
    }

    pub(crate) fn file(&self, version: u32) -> PathBuf {
        self.0.join(version.to_string()).join(MODEL)
    }

    /// Reads a version and verifies it against its record. A version without a record is accepted, if no version came
    /// from a coordinator.
    ///
    /// # Errors
    /// [`Unusable`].
    pub(crate) fn read(&self, version: u32, key: Option<AuditKey>) -> Result<Verified, Unusable> {
        let record = self.record(version, key)?;
        let path = self.file(version);
        let file = std::fs::read(&path).map_err(|source| Unusable::Read { path, source })?;
        let sha256 = sha256(&file);
        let Some((record, origin)) = record else {
            return Ok(Verified { file, sha256, architecture: None, table: None, task: None, is_restored: false });
        };
        let is_restored = record.goes_back(origin);
        let Record { task, sha256: expected, architecture, table, .. } = record;
        if sha256 != expected {
            return Err(Unusable::Digest { found: sha256, expected });
        }
        Ok(Verified { file, sha256, architecture, table, task: Some(task), is_restored })
    }

    /// Whether a version is restored or follows a restored one, according to a record signed by this key, if given.
    pub(crate) fn is_restored(&self, version: u32, key: Option<AuditKey>) -> bool {
        let record = self.record(version, key).ok().flatten();
        record.is_some_and(|(record, origin)| record.goes_back(origin))
    }

    /// The record of a version and its provenance.
    fn record(&self, version: u32, key: Option<AuditKey>) -> Result<Option<(Record, Option<Origin>)>, Unusable> {
        let record: Option<Record> = read_json(&self.0.join(version.to_string()).join(RECORD))?;
        let signed = record.as_ref().and_then(|record| record.provenance.as_ref().map(|signed| (record, signed)));
        let Some((told, signed)) = signed else {
            if key.is_some() {
                return Err(Unusable::Provenance("there is none, and earlier versions have one".to_owned()));
            }
            return Ok(record.map(|record| (record, None)));
        };
        let opened = signed.open().map_err(|error| Unusable::Provenance(error.to_string()))?;
        if (opened.task, opened.version, opened.sha256) != (told.task, version, told.sha256) {
            return Err(Unusable::Provenance("it is that of another model".to_owned()));
        }
        if let Some(key) = key.filter(|key| *key != opened.coordinator) {
            let other = opened.coordinator;
            return Err(Unusable::Provenance(format!("it is signed by the key {other}, not by {key}")));
        }
        let origin = opened.origin;
        Ok(record.map(|record| (record, Some(origin))))
    }

    /// The folder in which a version is written until it is complete; created if missing.
    pub(crate) fn incoming(&self, version: u32) -> io::Result<PathBuf> {
        let folder = self.0.join(format!("{INCOMING}{version}"));
        private_files::make_folder(&folder)?;
        Ok(folder.join(MODEL))
    }

    /// Turns the incoming folder into a version.
    pub(crate) fn keep(&self, version: u32, record: &Record) -> io::Result<()> {
        let (incoming, place) = (self.0.join(format!("{INCOMING}{version}")), self.0.join(version.to_string()));
        write(&incoming.join(RECORD), record)?;
        if place.exists() {
            std::fs::remove_dir_all(&place)?;
        }
        std::fs::rename(&incoming, &place)?;
        File::open(&self.0)?.sync_all()
    }

    /// The state of the last run, empty if there is none. Logs a damaged state file and moves it, so that serving
    /// continues without it.
    ///
    /// # Errors
    /// [`Unusable::Read`]: the file may exist, with rolled-back versions and the pinned key.
    pub(crate) fn state(&self) -> Result<State, Unusable> {
        let path = self.0.join(STATE);
        match read_json(&path) {
            Ok(state) => Ok(state.unwrap_or_default()),
            Err(Unusable::Read { path, source }) => Err(Unusable::Read { path, source }),
            Err(
                error @ (Unusable::Name(_) | Unusable::Record(..) | Unusable::Digest { .. } | Unusable::Provenance(_)),
            ) => {
                let aside = self.0.join(DAMAGED);
                std::fs::rename(&path, &aside).map_err(|source| Unusable::Read { path, source })?;
                let aside = aside.display();
                tracing::error!(
                    "what was in use, what was taken back and whose signatures count is forgotten: {error}; it lies in {aside}"
                );
                Ok(State::default())
            }
        }
    }

    pub(crate) fn write_state(&self, state: &State) -> io::Result<()> {
        private_files::make_folder(&self.0)?;
        let draft = self.0.join(format!(".{STATE}"));
        write(&draft, state)?;
        std::fs::rename(&draft, self.0.join(STATE))?;
        File::open(&self.0)?.sync_all()
    }

    /// Moves all versions to the folder of a former task, which it returns.
    pub(crate) fn set_aside(&self, former: TaskId) -> io::Result<PathBuf> {
        let place = self.0.join(format!("{FORMER}{former}"));
        for version in self.versions()? {
            private_files::make_folder(&place)?;
            let name = version.to_string();
            let there = place.join(&name);
            if there.exists() {
                std::fs::remove_dir_all(&there)?;
            }
            std::fs::rename(self.0.join(&name), there)?;
        }
        Ok(place)
    }

    /// Removes all other versions and incomplete downloads. No download may be in progress.
    pub(crate) fn retain(&self, kept: &[u32]) -> io::Result<()> {
        for version in self.versions()? {
            if !kept.contains(&version) {
                std::fs::remove_dir_all(self.0.join(version.to_string()))?;
            }
        }
        for entry in std::fs::read_dir(&self.0)? {
            let entry = entry?;
            if entry.file_name().to_str().is_some_and(|name| name.starts_with(INCOMING)) {
                std::fs::remove_dir_all(entry.path())?;
            }
        }
        Ok(())
    }
}

fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<Option<T>, Unusable> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(Unusable::Read { path: path.to_owned(), source }),
    };
    let read = serde_json::from_reader(io::Read::take(file, TEXT_MAX));
    read.map(Some).map_err(|error| {
        let path = path.to_owned();
        if error.is_io() {
            return Unusable::Read { path, source: error.into() };
        }
        Unusable::Record(path, error.to_string())
    })
}

fn write<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(&serde_json::to_vec(value)?)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TASK: &str = "00000000-0000-0000-0000-000000000001";

    fn put(folder: &ModelFolder, version: u32, file: &[u8], told: &[u8]) {
        std::fs::write(folder.incoming(version).unwrap(), file).unwrap();
        let sha256 = sha256(told);
        let task = TASK.parse().unwrap();
        let record =
            Record { task, sha256, architecture: None, table: None, provenance: None, follows_restored: false };
        folder.keep(version, &record).unwrap();
    }

    #[test]
    fn a_version_is_there_whole_or_not_at_all_and_another_file_is_refused() {
        let models = tempfile::tempdir().unwrap();
        let folder = ModelFolder::new(models.path(), "digits").unwrap();
        assert!(folder.versions().unwrap().is_empty());
        put(&folder, 2, b"two", b"two");
        put(&folder, 10, b"ten", b"another");
        std::fs::write(folder.incoming(11).unwrap(), b"half").unwrap();
        std::fs::create_dir(models.path().join("digits/007")).unwrap();
        std::fs::create_dir(models.path().join("digits/12")).unwrap();
        assert_eq!(folder.versions().unwrap(), [10, 2]);
        let read = folder.read(2, None).unwrap();
        assert_eq!((read.file.as_slice(), read.task), (&b"two"[..], Some(TASK.parse().unwrap())));
        assert!(matches!(folder.read(10, None), Err(Unusable::Digest { .. })));
        let key = "ab".repeat(32).parse().unwrap();
        assert!(matches!(folder.read(2, Some(key)), Err(Unusable::Provenance(_))), "signed until now");
        std::fs::remove_file(models.path().join("digits/2/record.json")).unwrap();
        assert!(folder.read(2, None).is_ok_and(|read| read.task.is_none()), "somebody put it there");
        assert!(matches!(folder.read(2, Some(key)), Err(Unusable::Provenance(_))), "not where they are signed");
        folder.retain(&[2]).unwrap();
        assert_eq!(folder.versions().unwrap(), [2]);
        assert!(!models.path().join("digits/.incoming-11").exists(), "half a version stays nowhere");
    }

    #[test]
    fn what_is_there_of_a_former_task_is_set_aside() {
        let models = tempfile::tempdir().unwrap();
        let folder = ModelFolder::new(models.path(), "digits").unwrap();
        let task = TASK.parse().unwrap();
        for version in [1, 2, 1] {
            put(&folder, version, b"file", b"file");
            folder.set_aside(task).unwrap();
        }
        assert!(folder.versions().unwrap().is_empty());
        folder.retain(&[]).unwrap();
        let aside = models.path().join(format!("digits/.former-{TASK}"));
        assert!(aside.join("1").join(MODEL).exists() && aside.join("2").join(MODEL).exists());
    }

    #[test]
    fn what_was_in_use_is_read_again_and_what_is_damaged_lies_aside() {
        let models = tempfile::tempdir().unwrap();
        let folder = ModelFolder::new(models.path(), "digits").unwrap();
        assert_eq!(folder.state().unwrap(), State::default());
        let state = State {
            stable: Some(3),
            previous: Some(2),
            refused: [1].into(),
            key: None,
            task: Some(TASK.parse().unwrap()),
        };
        folder.write_state(&state).unwrap();
        assert_eq!(folder.state().unwrap(), state);
        let path = models.path().join("digits/state.json");
        std::fs::write(&path, "{").unwrap();
        assert_eq!(folder.state().unwrap(), State::default());
        folder.write_state(&state).unwrap();
        assert_eq!(folder.state().unwrap(), state);
        assert_eq!(std::fs::read_to_string(path.with_file_name(DAMAGED)).unwrap(), "{");
        // Reading a folder as a file fails, but does not prove that there was no state.
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(matches!(folder.state(), Err(Unusable::Read { .. })));
        assert!(path.is_dir());
    }
}
