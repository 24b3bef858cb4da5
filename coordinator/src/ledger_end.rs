//! The end of a task's privacy ledger and the task's promise, stored outside the database.
//!
//! Rows, head and counters are in one database: anyone who can write it can truncate the ledger consistently, raise
//! the budget, or restore an older database. So the number of rows, the last seal and the task's `[privacy]` are also
//! in a file beside the sealing key, under a MAC with that key. The file is written after the transaction that adds a
//! row and before a version is published, so it may lag behind the database by what is not published yet, and is never
//! ahead of it.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use federation::id::TaskId;
use serde::{Deserialize, Serialize};
use task_spec::PrivacySpec;

use crate::guarded::Guarded;

/// Marker file: every ledger with rows has a file. No task has this name.
const COMPLETE: &str = "complete";
/// Locked by whoever replaces a file. No task has this name.
const LOCK: &str = "lock";

/// The end of a ledger.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LedgerEnd {
    pub(crate) rows: u64,
    /// Seal of the last row, as 64 hexadecimal digits; zeros without rows.
    pub(crate) seal: String,
    /// The task's promise at its creation.
    pub(crate) privacy: PrivacySpec,
}

/// The stored end of a ledger.
pub(crate) enum StoredEnd {
    /// No file yet.
    Nothing,
    End(LedgerEnd),
    /// A file that was not written with this key.
    Foreign(PathBuf),
}

/// Reasons a ledger that verifies does not match its stored end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LedgerEndError {
    /// The file was changed, or written with another sealing key.
    #[error(
        "the file that says where the privacy ledger ends is not what was written, or was written with another seal.key: {0}"
    )]
    File(PathBuf),
    /// There are rows but no file.
    #[error(
        "the file that says where the privacy ledger ends is gone: restore it from a backup, together with the database it belongs to"
    )]
    Missing,
    /// The database has fewer rows than were stored.
    #[error(
        "the privacy ledger has {rows} rows, and had {kept}: rows were removed, or the database is older than what was released \
         since; restore the newest backup, or cancel the task"
    )]
    Older {
        /// Rows in the database.
        rows: u64,
        /// Rows according to the file.
        kept: u64,
    },
    /// A different row is in the place of the last one.
    #[error(
        "row {0} of the privacy ledger is not the one that was there: the database is another one's, or was restored and gone on with"
    )]
    Other(u64),
    /// The task's promise differs.
    #[error(
        "[privacy] of the task is not what it was created with: it was edited in the database; restore it from a backup"
    )]
    Promise,
}

/// The files with the ends of ledgers.
pub(crate) struct LedgerEnds {
    /// `None`: in memory only.
    folder: Option<PathBuf>,
    /// The ends without a folder.
    kept: Guarded<HashMap<TaskId, Vec<u8>>>,
}

impl LedgerEnds {
    /// In this folder, created when needed; without one, in memory.
    pub(crate) fn new(folder: Option<PathBuf>) -> Self {
        Self { folder, kept: Guarded::default() }
    }

    /// Whether every ledger with rows must have its file: before [`Self::complete`] there may be ledgers of a version
    /// without such files.
    pub(crate) fn are_complete(&self) -> bool {
        self.folder.as_ref().is_none_or(|folder| folder.join(COMPLETE).exists())
    }

    /// Records permanently that every ledger with rows has a file.
    ///
    /// # Errors
    /// The file system's.
    pub(crate) fn complete(&self) -> std::io::Result<()> {
        let Some(folder) = self.folder.as_ref().filter(|_| !self.are_complete()) else { return Ok(()) };
        crate::files::write_new(&folder.join(COMPLETE), b"")
    }

    /// Where the files are; a name that is no folder's if they are in memory.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.as_deref().unwrap_or(Path::new("memory"))
    }

    /// Path of a task's file.
    pub(crate) fn path(&self, task: TaskId) -> PathBuf {
        self.folder().join(task.0.simple().to_string())
    }

    /// Reads a task's file.
    ///
    /// # Errors
    /// The file system's.
    pub(crate) fn read(&self, task: TaskId) -> std::io::Result<Option<Vec<u8>>> {
        if self.folder.is_none() {
            return Ok(self.kept.lock().get(&task).cloned());
        }
        match std::fs::read(self.path(task)) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Waits until nobody else replaces files of this folder, in this process or another that shares it. Held from the
    /// comparison with the present file to the end of [`LedgerEnds::write`], so that a slow writer takes no file back.
    ///
    /// # Errors
    /// The file system's.
    pub(crate) fn alone(&self) -> std::io::Result<Option<File>> {
        self.folder.as_ref().map(|folder| crate::files::alone(&folder.join(LOCK))).transpose()
    }

    /// Replaces a task's file atomically.
    ///
    /// # Errors
    /// The file system's.
    pub(crate) fn write(&self, task: TaskId, bytes: Vec<u8>) -> std::io::Result<()> {
        if self.folder.is_none() {
            self.kept.lock().insert(task, bytes);
            return Ok(());
        }
        crate::files::write_new(&self.path(task), &bytes)
    }
}
