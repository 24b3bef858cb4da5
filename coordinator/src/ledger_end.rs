//! The end of a task's privacy ledger and the task's promise, stored outside the database.
//!
//! Rows, head and counters are in one database: anyone who can write it can truncate the ledger consistently, raise
//! the budget, or restore an older database. So the number of rows, the last seal and the task's `[privacy]` are also
//! in a file beside the sealing key, under a MAC with that key. The file is written after the transaction that adds a
//! row and before a version is published, so it may lag behind the database by what is not published yet, and is never
//! ahead of it.

use federation::id::TaskId;
use serde::{Deserialize, Serialize};
use store::Result;
use task_spec::PrivacySpec;

use crate::shelf::{Bytes, Shelf};

/// Marker file of a folder: every ledger with rows has a file. No task has this name.
const COMPLETE: &str = "complete";

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
#[derive(Clone, Debug)]
pub(crate) enum StoredEnd {
    /// No file yet.
    Nothing {
        /// Whether every ledger with rows must have one.
        is_missed: bool,
    },
    End(LedgerEnd),
    /// A file, here, that was not written with this key.
    Foreign(String),
}

/// Reasons a ledger that verifies does not match its stored end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LedgerEndError {
    /// The file was changed, or written with another sealing key.
    #[error(
        "the file that says where the privacy ledger ends is not what was written, or was written with another seal.key: {0}"
    )]
    File(String),
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

/// The files with the ends of ledgers. Every call may wait for a disk or a network.
pub(crate) struct LedgerEnds(Shelf);

impl LedgerEnds {
    pub(crate) fn new(shelf: Shelf) -> Self {
        Self(shelf)
    }

    /// Whether every ledger with rows must have its file. In a folder there may be, before [`Self::complete`], ledgers of a version
    /// of the program without such files.
    pub(crate) fn are_complete(&self) -> bool {
        self.0.folder().is_none_or(|folder| folder.join(COMPLETE).exists())
    }

    /// Records permanently that every ledger with rows has a file.
    ///
    /// # Errors
    /// The file system's.
    pub(crate) fn complete(&self) -> Result<()> {
        match self.0.folder() {
            Some(folder) if !self.are_complete() => Ok(crate::files::write_new(&folder.join(COMPLETE), b"")?),
            _ => Ok(()),
        }
    }

    /// Where a task's file is.
    pub(crate) fn place(&self, task: TaskId) -> String {
        self.0.place(&file_name(task))
    }

    /// Reads a task's file.
    ///
    /// # Errors
    /// The shelf's.
    pub(crate) fn read(&self, task: TaskId) -> Result<Option<Bytes>> {
        self.0.read(&file_name(task))
    }

    /// Replaces a task's file by what `judge` makes of it, if anything. No process takes a file back that another has replaced.
    ///
    /// # Errors
    /// The shelf's.
    pub(crate) fn replace(
        &self,
        task: TaskId,
        judge: impl FnMut(Option<&[u8]>) -> Result<Option<Vec<u8>>>,
    ) -> Result<()> {
        self.0.replace(&file_name(task), judge)
    }

    /// Whether the files can be read.
    ///
    /// # Errors
    /// The shelf's.
    pub(crate) fn try_to_read(&self) -> Result<()> {
        self.0.read(COMPLETE).map(drop)
    }
}

fn file_name(task: TaskId) -> String {
    task.0.simple().to_string()
}
