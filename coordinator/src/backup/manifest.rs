//! `manifest.json`: what a backup consists of.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use federation::id::Digest;
use federation::time::Timestamp;
use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};

use super::BackupError;
use crate::files::Draft;

/// The form of manifests that this program writes and reads.
const FORMAT: u32 = 1;
const FILE: &str = "manifest.json";
/// Folder of the database.
const ROWS: &str = "rows";
const BLOBS: &str = "blobs";
/// Most bytes of a manifest that are read: some ten million blobs.
const BYTES_MAX: u64 = 1 << 30;

/// What a backup consists of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Manifest {
    format: u32,
    pub(crate) made_at: Timestamp,
    /// Version of the program that made it.
    program: String,
    pub(crate) rows: Entry,
    pub(crate) blobs: Vec<Entry>,
    /// Blobs that rows name and that were missing or damaged when the backup was made, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) lacks: Vec<String>,
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
        Self { format: FORMAT, made_at, program, rows, blobs, lacks }
    }

    /// The manifest of the backup in this folder; `None` if there is none.
    ///
    /// # Errors
    /// [`BackupError::NoBackup`] if the file is none of a form that this program knows.
    pub(super) fn find(folder: &Path) -> Result<Option<Self>, BackupError> {
        let path = folder.join(FILE);
        let file = match std::fs::File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(BackupError::at(&path)(error)),
        };
        let mut text = String::new();
        let unusable = |why: String| BackupError::NoBackup { folder: folder.to_owned(), why };
        file.take(BYTES_MAX).read_to_string(&mut text).map_err(|error| unusable(format!("{FILE}: {error}")))?;
        let manifest: Self = serde_json::from_str(&text).map_err(|error| unusable(format!("{FILE}: {error}")))?;
        if manifest.format != FORMAT {
            return Err(unusable(format!(
                "{FILE} has format {}, this program knows {FORMAT}: use the program of version {} or newer",
                manifest.format, manifest.program
            )));
        }
        Ok(Some(manifest))
    }

    /// The same, where a backup has to be.
    ///
    /// # Errors
    /// [`BackupError::NoBackup`].
    pub(crate) fn read(folder: &Path) -> Result<Self, BackupError> {
        Self::find(folder)?.ok_or_else(|| BackupError::NoBackup {
            folder: folder.to_owned(),
            why: format!("there is no {FILE}, which a backup gets when it is whole"),
        })
    }

    /// Makes this the folder's backup, durably.
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
        let (mut file, mut context) = (std::fs::File::open(path)?, Context::new(&SHA256));
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
