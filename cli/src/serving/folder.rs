//! The versions of a model on disk, so that a restart, or a coordinator that is gone, stops nothing.
//!
//! `MODELS/NAME/VERSION/model.safetensors` is a version; `record.json` beside it says which file it must be. A version appears by
//! the renaming of its whole folder, so that none is there in part. `MODELS/NAME/state.json` says which version was in use.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use client_sdk::models::Architecture;
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use wire::audit::AuditKey;
use wire::provenance::SignedProvenance;
use wire::{Digest, TaskId};

/// A version's file.
pub(crate) const MODEL: &str = "model.safetensors";
const RECORD: &str = "record.json";
const STATE: &str = "state.json";
/// Begins the name of a folder whose version is not whole yet.
const INCOMING: &str = ".incoming-";
/// Longest record or state that is read.
const TEXT_MAX: u64 = 1 << 20;

/// What was known of a version when it was fetched.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) task: TaskId,
    pub(crate) sha256: Digest,
    /// The model by kind and sizes, if the task tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) architecture: Option<Architecture>,
    /// Where it comes from, as its coordinator signed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) provenance: Option<SignedProvenance>,
}

/// What was in use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct State {
    pub(crate) stable: Option<u32>,
    pub(crate) previous: Option<u32>,
    /// Versions that were taken back.
    pub(crate) refused: BTreeSet<u32>,
    /// The key that signed the first record of the model; later ones must be signed by it, too.
    pub(crate) key: Option<AuditKey>,
}

/// A version that was read, and is the one that its record says.
pub(crate) struct Verified {
    pub(crate) file: Vec<u8>,
    pub(crate) sha256: Digest,
    pub(crate) architecture: Option<Architecture>,
    pub(crate) task: Option<TaskId>,
    /// Whether it goes back to an earlier version, as its record says.
    pub(crate) is_restored: bool,
}

/// Why a version on disk is not used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unusable {
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
    pub(crate) fn new(models: &Path, name: &str) -> Self {
        Self(models.join(name))
    }

    /// Numbers of the versions that are there, the newest first. What has another name than a number is none.
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

    /// Reads a version, and holds it against its record. One without a record is whatever it is: somebody put it there.
    ///
    /// # Errors
    /// [`Unusable`].
    pub(crate) fn read(&self, version: u32, key: Option<AuditKey>) -> Result<Verified, Unusable> {
        let unreadable = |path: PathBuf| move |source| Unusable::Read { path, source };
        let path = self.file(version);
        let file = std::fs::read(&path).map_err(unreadable(path))?;
        let mut sha256 = Digest([0; 32]);
        sha256.0.copy_from_slice(digest(&SHA256, &file).as_ref());
        let path = self.0.join(version.to_string()).join(RECORD);
        let record: Option<Record> = read_json(&path)?;
        let Some(Record { task, sha256: expected, architecture, provenance }) = record else {
            return Ok(Verified { file, sha256, architecture: None, task: None, is_restored: false });
        };
        if sha256 != expected {
            return Err(Unusable::Digest { found: sha256, expected });
        }
        let origin = match provenance {
            Some(signed) => {
                let record = signed.open().map_err(|error| Unusable::Provenance(error.to_string()))?;
                if (record.task, record.version, record.sha256) != (task, version, sha256) {
                    return Err(Unusable::Provenance("it is that of another model".to_owned()));
                }
                if let Some(key) = key.filter(|key| *key != record.coordinator) {
                    let other = record.coordinator;
                    return Err(Unusable::Provenance(format!("it is signed by the key {other}, not by {key}")));
                }
                Some(record.origin)
            }
            None if key.is_some() => {
                return Err(Unusable::Provenance("there is none, and earlier versions have one".to_owned()));
            }
            None => None,
        };
        let is_restored = origin == Some(wire::provenance::Origin::Restored);
        Ok(Verified { file, sha256, architecture, task: Some(task), is_restored })
    }

    /// Where a version is written until it is whole; made if it is not there.
    pub(crate) fn incoming(&self, version: u32) -> io::Result<PathBuf> {
        let folder = self.0.join(format!("{INCOMING}{version}"));
        coordinator::make_private_folder(&folder)?;
        Ok(folder.join(MODEL))
    }

    /// Makes a version of what was written as incoming.
    pub(crate) fn keep(&self, version: u32, record: &Record) -> io::Result<()> {
        let (incoming, place) = (self.0.join(format!("{INCOMING}{version}")), self.0.join(version.to_string()));
        write(&incoming.join(RECORD), record)?;
        if place.exists() {
            std::fs::remove_dir_all(&place)?;
        }
        std::fs::rename(&incoming, &place)?;
        File::open(&self.0)?.sync_all()
    }

    /// What was in use; nothing, if nothing was, or if it cannot be read.
    pub(crate) fn state(&self) -> State {
        read_json(&self.0.join(STATE)).ok().flatten().unwrap_or_default()
    }

    pub(crate) fn write_state(&self, state: &State) -> io::Result<()> {
        coordinator::make_private_folder(&self.0)?;
        let draft = self.0.join(format!(".{STATE}"));
        write(&draft, state)?;
        std::fs::rename(&draft, self.0.join(STATE))?;
        File::open(&self.0)?.sync_all()
    }

    /// Removes all versions but these, and what was left half fetched: nothing may be incoming.
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
    read.map(Some).map_err(|error| Unusable::Record(path.to_owned(), error.to_string()))
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
        let mut sha256 = Digest([0; 32]);
        sha256.0.copy_from_slice(digest(&SHA256, told).as_ref());
        let record = Record { task: TASK.parse().unwrap(), sha256, architecture: None, provenance: None };
        folder.keep(version, &record).unwrap();
    }

    #[test]
    fn a_version_is_there_whole_or_not_at_all_and_another_file_is_refused() {
        let models = tempfile::tempdir().unwrap();
        let folder = ModelFolder::new(models.path(), "digits");
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
        folder.retain(&[2]).unwrap();
        assert_eq!(folder.versions().unwrap(), [2]);
        assert!(!models.path().join("digits/.incoming-11").exists(), "half a version stays nowhere");
    }

    #[test]
    fn what_was_in_use_is_read_again_and_damage_is_as_nothing() {
        let models = tempfile::tempdir().unwrap();
        let folder = ModelFolder::new(models.path(), "digits");
        assert_eq!(folder.state(), State::default());
        let state = State { stable: Some(3), previous: Some(2), refused: [1].into(), key: None };
        folder.write_state(&state).unwrap();
        assert_eq!(folder.state(), state);
        std::fs::write(models.path().join("digits/state.json"), "{").unwrap();
        assert_eq!(folder.state(), State::default());
    }
}
