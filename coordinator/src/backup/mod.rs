//! Backup of a coordinator's data, also during operation, and its restore.
//!
//! A backup is a folder: `manifest.json`, one database in `rows/`, and blobs in `blobs/` in the coordinator's layout. The manifest lists
//! all other files by SHA-256 and is renamed into place last. Without a manifest, a folder is incomplete; during a renewal it remains the
//! earlier backup until the end. A backup excludes all keys, and the unmasked inputs and partial sums of private tasks, whose release
//! requires noise.

mod contents;
mod ledgers;
mod manifest;
mod restore;
mod take;
mod unmasked;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use federation::time::{Clock, Timestamp};
use store::{Blobs, StoreError};

pub(crate) use self::contents::copy_blob;
pub(crate) use self::ledgers::{LedgerStanding, examine};
pub(crate) use self::manifest::{Manifest, blobs_folder};
pub(crate) use self::restore::{Trusted, restore, restoring};
pub(crate) use self::take::{described, take};
pub(crate) use self::unmasked::unmasked_private_tasks;
use crate::config::DatabaseError;
use crate::maintenance::damage::is_damage;
use crate::privacy::seal::SealError;
use crate::process::lock::LockError;

/// The locations of a coordinator's rows and blobs.
pub(crate) struct Places {
    pub(crate) database: PathBuf,
    pub(crate) blobs: Blobs,
    pub(crate) clock: Arc<dyn Clock>,
}

task_spec::named_enum! {
    /// The stage of a long command.
    pub enum Stage {
        /// Copying rows; counted in database pages.
        Rows = "rows",
        /// Copying blobs; counted in blobs.
        Blobs = "blobs",
        /// Computing digests; counted in blobs read.
        Check = "check",
    }
}

/// Progress of a long command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    pub stage: Stage,
    pub done: u64,
    pub of: u64,
}

/// Callback for the progress of a long command.
pub type OnProgress<'p> = &'p mut (dyn FnMut(Progress) + Send);

/// What a completed backup contains.
#[derive(Clone, Debug, serde::Serialize)]
pub struct BackupReport {
    pub made_at: Timestamp,
    /// Size of the database.
    pub rows_bytes: u64,
    pub blobs: usize,
    /// Size of all blobs.
    pub blobs_bytes: u64,
    /// Blobs already present in the folder.
    pub reused: usize,
    /// New blobs hard-linked to the coordinator's files.
    pub linked: usize,
    /// New blobs copied from the coordinator's files.
    pub copied: usize,
    /// Removed blobs and databases of earlier backups.
    pub removed: usize,
    /// Unmasked inputs and partial sums of private tasks, excluded from backups.
    pub left_out: usize,
    /// Descriptions of referenced blobs missing or damaged in the coordinator's store, and so missing here.
    pub lacks: Vec<String>,
}

/// What a completed restore has changed.
#[derive(Clone, Debug, serde::Serialize)]
pub struct RestoreReport {
    /// When the backup was made.
    pub made_at: Timestamp,
    pub blobs: usize,
    /// Blobs missing from the coordinator's store before.
    pub copied: usize,
    /// New path of the replaced database.
    pub replaced: Option<PathBuf>,
    /// Blobs missing from the backup, and now from the coordinator.
    pub lacks: Vec<String>,
    /// Private tasks paused by the restore, with reasons.
    pub paused: Vec<PausedTask>,
}

/// A private task paused until an operator decides.
#[derive(Clone, Debug, serde::Serialize)]
pub struct PausedTask {
    pub task: federation::id::TaskId,
    pub name: String,
    pub why: String,
}

/// Reasons for a failed backup or restore.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The rows are in a server with its own backup tools.
    #[error(
        "rows are in PostgreSQL: back them up with its own tools (`pg_dump --format=custom`, or `pg_basebackup` with its \
         write-ahead log archived), and the blobs with those of the bucket (versions or a replica of it), rows before blobs; \
         docs/OPERATIONS.md says how"
    )]
    OtherTools,
    /// The configuration of the database server is unusable.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// Rows or blobs are only in memory.
    #[error("{0} is in memory and ends with the coordinator: there is nothing to copy")]
    InMemory(&'static str),
    #[error("there is no database at {0}")]
    NoDatabase(PathBuf),
    /// Another process uses the data or the backup.
    #[error(transparent)]
    Locked(#[from] LockError),
    #[error("{0}")]
    Store(#[from] StoreError),
    /// The sealing key is unreadable.
    #[error(transparent)]
    Seal(#[from] SealError),
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    /// The folder lacks a complete backup.
    #[error("{folder} holds no whole backup: {why}")]
    NoBackup { folder: PathBuf, why: String },
    /// The file of the sealing key is missing.
    #[error("there is no sealing key {0}, which authenticates backups: put it back")]
    NoKey(PathBuf),
    /// The manifest lacks a MAC of the sealing key.
    #[error(
        "{folder} is not known to be a backup of this coordinator: {why}. Nothing was changed. Whoever changed a backup may have added \
         tokens and participants to it; --unauthenticated restores it all the same"
    )]
    Unauthenticated { folder: PathBuf, why: &'static str },
    /// Files of a backup differ from the digests in its manifest.
    #[error("the backup is damaged, and nothing was changed: {}", .0.join("; "))]
    Damaged(Vec<String>),
    /// The target already has a database.
    #[error(
        "there is a database already ({0}): stop here, or give --replace to put the backup in its place; it is kept beside it \
         under another name"
    )]
    Occupied(PathBuf),
    /// Blobs changed faster than they could be copied.
    #[error(
        "the rows changed faster than their blobs could be copied, {0} times: run it again, best into the same folder"
    )]
    Restless(u32),
}

impl BackupError {
    /// Whether stored data was changed.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Damaged(_) | Self::Unauthenticated { .. } => true,
            Self::Store(error) => is_damage(error),
            Self::OtherTools
            | Self::Database(_)
            | Self::InMemory(_)
            | Self::NoDatabase(_)
            | Self::NoKey(_)
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
