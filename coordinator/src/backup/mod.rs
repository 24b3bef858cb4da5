//! A copy of what a coordinator must not lose, made while it serves, and put back.
//!
//! A backup is a folder: `manifest.json`, one database in `rows/`, and blobs in `blobs/` as a coordinator has them. The manifest names
//! everything else by its SHA-256 and is renamed into place last, so a folder without one is no backup, and one that is being
//! renewed is the earlier backup until the very end. No key is ever in it.

mod contents;
mod ledgers;
mod manifest;
mod restore;
mod take;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use federation::time::{Clock, Timestamp};
use store::{Blobs, StoreError};

pub(crate) use self::contents::copy_blob;
pub(crate) use self::ledgers::{LedgerStanding, examine};
pub(crate) use self::manifest::{Manifest, blobs_folder};
pub(crate) use self::restore::{Known, restore, restoring};
pub(crate) use self::take::{described, take};
use crate::config::DatabaseError;
use crate::damage::is_damage;
use crate::lock::LockError;
use crate::seal::SealError;

/// Where a coordinator has its rows and blobs.
pub(crate) struct Places {
    pub(crate) database: PathBuf,
    pub(crate) blobs: Blobs,
    pub(crate) clock: Arc<dyn Clock>,
}

task_spec::named_enum! {
    /// What a long command is doing.
    pub enum Stage {
        /// Copies rows; counted in pages of the database.
        Rows = "rows",
        /// Copies blobs, and counts them.
        Blobs = "blobs",
        /// Computes digests, and counts the blobs that have been read.
        Check = "check",
    }
}

/// How far a long command is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    pub stage: Stage,
    pub done: u64,
    pub of: u64,
}

/// Is told how far a long command is.
pub type OnProgress<'p> = &'p mut (dyn FnMut(Progress) + Send);

/// A backup that was made.
#[derive(Clone, Debug, serde::Serialize)]
pub struct BackupReport {
    pub made_at: Timestamp,
    /// Size of the database.
    pub rows_bytes: u64,
    pub blobs: usize,
    /// Size of all blobs.
    pub blobs_bytes: u64,
    /// Blobs that were in the folder already.
    pub reused: usize,
    /// New blobs that are the coordinator's own files under a second name.
    pub linked: usize,
    /// New blobs that were copied.
    pub copied: usize,
    /// Blobs and databases of earlier backups that were removed.
    pub removed: usize,
    /// Blobs that rows name and that are missing or damaged in the coordinator's store, so that the backup lacks them.
    pub lacks: Vec<String>,
}

/// A backup that was put back.
#[derive(Clone, Debug, serde::Serialize)]
pub struct RestoreReport {
    /// When the backup was made.
    pub made_at: Timestamp,
    pub blobs: usize,
    /// Blobs that were not in the coordinator's store already.
    pub copied: usize,
    /// Where the database that was replaced is.
    pub replaced: Option<PathBuf>,
    /// What the backup lacks, and so does the coordinator.
    pub lacks: Vec<String>,
    /// Private tasks that were paused, and why.
    pub paused: Vec<PausedTask>,
}

/// A private task that is paused until an operator decides.
#[derive(Clone, Debug, serde::Serialize)]
pub struct PausedTask {
    pub task: federation::id::TaskId,
    pub name: String,
    pub why: String,
}

/// Reasons a backup was not made or put back.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The rows are in a server that has its own tools.
    #[error(
        "rows are in PostgreSQL: back them up with its own tools (`pg_dump --format=custom`, or `pg_basebackup` with its \
         write-ahead log archived), and the blobs with those of the bucket (versions or a replica of it), rows before blobs; \
         docs/OPERATIONS.md says how"
    )]
    OtherTools,
    /// The configuration of a database server cannot be used.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// Rows or blobs end with the process.
    #[error("{0} is in memory and ends with the coordinator: there is nothing to copy")]
    InMemory(&'static str),
    #[error("there is no database at {0}")]
    NoDatabase(PathBuf),
    /// Another process works on the data or on the backup.
    #[error(transparent)]
    Locked(#[from] LockError),
    #[error("{0}")]
    Store(#[from] StoreError),
    /// The sealing key cannot be read.
    #[error(transparent)]
    Seal(#[from] SealError),
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    /// The folder holds no whole backup.
    #[error("{folder} holds no whole backup: {why}")]
    NoBackup { folder: PathBuf, why: String },
    /// Files of a backup have other digests than its manifest says.
    #[error("the backup is damaged, and nothing was changed: {}", .0.join("; "))]
    Damaged(Vec<String>),
    /// There is a database where one is to be restored.
    #[error(
        "there is a database already ({0}): stop here, or give --replace to put the backup in its place; it is kept beside it \
         under another name"
    )]
    Occupied(PathBuf),
    /// Blobs came and went faster than they could be copied.
    #[error(
        "the rows changed faster than their blobs could be copied, {0} times: run it again, best into the same folder"
    )]
    Restless(u32),
}

impl BackupError {
    /// Whether something that was stored is not as it was written.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Damaged(_) => true,
            Self::Store(error) => is_damage(error),
            Self::OtherTools
            | Self::Database(_)
            | Self::InMemory(_)
            | Self::NoDatabase(_)
            | Self::Locked(_)
            | Self::Seal(_)
            | Self::Io { .. }
            | Self::NoBackup { .. }
            | Self::Occupied(_)
            | Self::Restless(_) => false,
        }
    }

    /// For `map_err`: the failure of a file operation on `path`.
    fn at(path: &Path) -> impl FnOnce(io::Error) -> Self + use<'_> {
        move |source| Self::Io { path: path.to_owned(), source }
    }
}
