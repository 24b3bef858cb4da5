//! `manifest.json`: the contents of a backup.
//!
//! It lists the database and the blobs by digest, and has a MAC with a key derived from `seal.key`. A restore rejects a forged or modified
//! backup, for example one with an attacker's admin token.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use federation::id::Digest;
use federation::time::Timestamp;
use ring::digest::{Context, SHA256};
use ring::hmac;
use serde::{Deserialize, Serialize};

use super::BackupError;
use crate::process::files::Draft;

/// The written version of the format. The previous one, without a MAC, is still readable.
const FORMAT: u32 = 2;
const FILE: &str = "manifest.json";
/// Folder of the database.
const ROWS: &str = "rows";
const BLOBS: &str = "blobs";
/// Maximum size of a manifest in bytes: some ten million blobs.
const BYTES_MAX: u64 = 1 << 30;

/// The contents of a backup.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Manifest {
    format: u32,
    pub(crate) made_at: Timestamp,
    /// Version of the program that wrote it.
    program: String,
    pub(crate) rows: Entry,
    pub(crate) blobs: Vec<Entry>,
    /// Descriptions of blobs missing or damaged when the backup was made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) lacks: Vec<String>,
    /// MAC of all other fields, as 64 hexadecimal digits; `None` without a sealing key file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mac: Option<String>,
}

/// A file of a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Entry {
    pub(crate) sha256: Digest,
    pub(crate) bytes: u64,
}

impl Manifest {
    pub(super) fn new(made_at: Timestamp, rows: Entry, blobs: Vec<Entry>, lacks: Vec<String>) -> Self {
        let program = env!("CARGO_PKG_VERSION").to_owned();
        Self { format: FORMAT, made_at, program, rows, blobs, lacks, mac: None }
    }

    /// The bytes that the MAC authenticates.
    fn authenticated(&self) -> Result<Vec<u8>, BackupError> {
        let rest = Self { mac: None, ..self.clone() };
        let text = serde_json::to_vec(&rest).map_err(|error| BackupError::at(Path::new(FILE))(error.into()))?;
        Ok([b"tributary backup manifest\0".as_slice(), &text].concat())
    }

    /// Sets `mac` to a MAC of all other fields.
    pub(super) fn sign(&mut self, key: &hmac::Key) -> Result<(), BackupError> {
        self.mac = Some(hex::encode(hmac::sign(key, &self.authenticated()?)));
        Ok(())
    }

    /// Checks that a holder of the sealing key wrote this manifest, which lists all other files of the backup by digest.
    ///
    /// # Errors
    /// [`BackupError::Unauthenticated`] without a key, without a MAC, or for a wrong MAC.
    pub(super) fn authenticate(&self, folder: &Path, key: Option<&hmac::Key>) -> Result<(), BackupError> {
        let refused = |why| Err(BackupError::Unauthenticated { folder: folder.to_owned(), why });
        let Some(key) = key else {
            return refused("there is no seal.key here to check its manifest with; put it back first");
        };
        let Some(mac) = &self.mac else {
            return refused("its manifest has no MAC, as those that earlier programs wrote");
        };
        let mac = hex::decode(mac).unwrap_or_default();
        match hmac::verify(key, &self.authenticated()?, &mac) {
            Ok(()) => Ok(()),
            Err(_) => refused("its manifest was changed, or was written with another seal.key"),
        }
    }

    /// Reads the manifest in this folder; `None` if missing.
    ///
    /// # Errors
    /// [`BackupError::NoBackup`] if the format is unknown.
    pub(super) fn find(folder: &Path) -> Result<Option<Self>, BackupError> {
        let path = folder.join(FILE);
        let unusable = |why: String| BackupError::NoBackup { folder: folder.to_owned(), why };
        let file = match store::private::open_regular(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => return Err(unusable(error.to_string())),
            Err(error) => return Err(BackupError::at(&path)(error)),
        };
        let mut text = String::new();
        file.take(BYTES_MAX).read_to_string(&mut text).map_err(|error| unusable(format!("{FILE}: {error}")))?;
        let manifest: Self = serde_json::from_str(&text).map_err(|error| unusable(format!("{FILE}: {error}")))?;
        if !(1..=FORMAT).contains(&manifest.format) {
            return Err(unusable(format!(
                "{FILE} has format {}, this program knows 1 to {FORMAT}: use the program of version {} or newer",
                manifest.format, manifest.program
            )));
        }
        Ok(Some(manifest))
    }

    /// Reads the manifest of an existing backup.
    ///
    /// # Errors
    /// [`BackupError::NoBackup`].
    pub(crate) fn read(folder: &Path) -> Result<Self, BackupError> {
        Self::find(folder)?.ok_or_else(|| BackupError::NoBackup {
            folder: folder.to_owned(),
            why: format!("there is no {FILE}, which a backup gets when it is whole"),
        })
    }

    /// Stores this as the folder's manifest, durably.
    pub(super) fn write(&self, folder: &Path) -> Result<(), BackupError> {
        let path = folder.join(FILE);
        let text = serde_json::to_vec_pretty(self).map_err(|error| BackupError::at(&path)(error.into()))?;
        Draft::write(&path, &text, 0o600).and_then(Draft::keep).map_err(BackupError::at(&path))
    }

    /// The file of the backup's database.
    pub(super) fn rows_file(&self, folder: &Path) -> PathBuf {
        rows_file(folder, &self.rows)
    }
}

/// The file of a database.
pub(super) fn rows_file(folder: &Path, rows: &Entry) -> PathBuf {
    rows_folder(folder).join(format!("{}.db", rows.sha256))
}

pub(super) fn rows_folder(folder: &Path) -> PathBuf {
    folder.join(ROWS)
}

pub(crate) fn blobs_folder(folder: &Path) -> PathBuf {
    folder.join(BLOBS)
}

/// Digest and size of a file.
pub(super) fn measure(path: &Path) -> Result<Entry, BackupError> {
    let read = || {
        let (mut file, mut context) = (store::private::open_regular(path)?, Context::new(&SHA256));
        let (mut piece, mut bytes) = (vec![0; 1 << 20], 0);
        loop {
            match file.read(&mut piece)? {
                0 => break,
                read => {
                    context.update(&piece[..read]);
                    bytes += read as u64;
                }
            }
        }
        let mut digest = [0; 32];
        digest.copy_from_slice(context.finish().as_ref());
        Ok(Entry { sha256: Digest(digest), bytes })
    };
    read().map_err(BackupError::at(path))
}
