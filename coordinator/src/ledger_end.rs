//! Where a task's privacy ledger ends, and what was promised, kept outside the database.
//!
//! Rows, their head and their counters lie together: who can write the database can cut the ledger short in all of them at once,
//! raise the budget, or put an older database in its place. So how many rows there were, the last seal and the task's `[privacy]`
//! are in a file beside the sealing key as well, under one MAC with it. The file is written after the transaction that adds
//! a row and before a version is published, so it may be behind the database by what is not published yet, and never ahead of it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use federation::id::TaskId;
use serde::{Deserialize, Serialize};
use task_spec::PrivacySpec;

use crate::guarded::Guarded;

/// The file that says that every ledger with rows has its own; no task is called so.
const COMPLETE: &str = "complete";

/// The end of a ledger.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LedgerEnd {
    /// How many rows there are.
    pub(crate) rows: u64,
    /// The seal of the last of them, as 64 hexadecimal digits; zeros if there is none.
    pub(crate) seal: String,
    /// What was promised when the task was created.
    pub(crate) privacy: PrivacySpec,
}

/// What is kept of where a ledger ends.
pub(crate) enum StoredEnd {
    /// Nothing yet.
    Nothing,
    /// This.
    End(LedgerEnd),
    /// A file that is not what was written here.
    Foreign(PathBuf),
}

/// Why a ledger that is right in itself is not the one that was kept.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LedgerEndError {
    /// The file is not what was written, or was written with another sealing key.
    #[error(
        "the file that says where the privacy ledger ends is not what was written, or was written with another seal.key: {0}"
    )]
    File(PathBuf),
    /// There are rows, and no file.
    #[error(
        "the file that says where the privacy ledger ends is gone: restore it from a backup, together with the database it belongs to"
    )]
    Missing,
    /// Rows are missing.
    #[error(
        "the privacy ledger has {rows} rows, and had {kept}: rows were removed, or the database is older than what was released \
         since; restore the newest backup, or cancel the task"
    )]
    Older {
        /// In the database.
        rows: u64,
        /// In the file.
        kept: u64,
    },
    /// Another row is where the last one was.
    #[error(
        "row {0} of the privacy ledger is not the one that was there: the database is another one's, or was restored and gone on with"
    )]
    Other(u64),
    /// The task says something else.
    #[error(
        "[privacy] of the task is not what it was created with: it was edited in the database; restore it from a backup"
    )]
    Promise,
}

/// The files.
pub(crate) struct LedgerEnds {
    /// None: they vanish with the process.
    folder: Option<PathBuf>,
    /// Those without a folder; locked by whoever writes.
    kept: Guarded<HashMap<TaskId, Vec<u8>>>,
}

impl LedgerEnds {
    /// In this folder, which is made when it is needed; without one, in memory.
    pub(crate) fn new(folder: Option<PathBuf>) -> Self {
        Self { folder, kept: Guarded::default() }
    }

    /// Whether every ledger with rows has its file: until [`Self::complete`] there may be ledgers of a program that kept none.
    pub(crate) fn are_complete(&self) -> bool {
        self.folder.as_ref().is_none_or(|folder| folder.join(COMPLETE).exists())
    }

    /// Says for good that a ledger with rows and without a file has lost it.
    ///
    /// # Errors
    /// The file system's.
    pub(crate) fn complete(&self) -> std::io::Result<()> {
        let Some(folder) = self.folder.as_ref().filter(|_| !self.are_complete()) else { return Ok(()) };
        crate::files::write_new(&folder.join(COMPLETE), b"")
    }

    /// Where a task's file lies.
    pub(crate) fn path(&self, task: TaskId) -> PathBuf {
        self.folder.as_deref().unwrap_or(Path::new("memory")).join(task.0.simple().to_string())
    }

    /// What was written for a task.
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

    /// Keeps it in the place of what was there, as one.
    ///
    /// # Errors
    /// The file system's.
    pub(crate) fn write(&self, task: TaskId, bytes: Vec<u8>) -> std::io::Result<()> {
        // One at a time: two would write to one draft.
        let mut kept = self.kept.lock();
        if self.folder.is_none() {
            kept.insert(task, bytes);
            return Ok(());
        }
        crate::files::write_new(&self.path(task), &bytes)
    }
}
