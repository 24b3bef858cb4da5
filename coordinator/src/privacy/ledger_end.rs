//! The end of a task's privacy ledger and the task's specification, stored outside the database.
//!
//! Rows, head and counters are in one database: an attacker with write access can truncate the ledger consistently, raise the budget, or
//! restore an older database. The number of rows, the last seal and the task's specification are therefore also in a file next to the
//! sealing key, with a MAC by that key. The file is written before the row of a new private task, and again between a ledger's new row and
//! the publication of its version. It may lag behind the database by the unpublished version, and is never ahead of it. Every private task
//! has a file: a missing one was lost, together with any facts missing from the database.

use federation::id::TaskId;
use serde::{Deserialize, Serialize};
use store::Result;
use task_spec::{PrivacySpec, TaskSpec};

use crate::privacy::secret_store::{Bytes, SecretStore};

/// Name of a file without a task, for testing read access.
const PROBE: &str = "probe";

/// The end of a ledger.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LedgerEnd {
    pub(crate) rows: u64,
    /// Seal of the last row, as 64 hexadecimal digits; zeros without rows.
    pub(crate) seal: String,
    /// The task's specification at creation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) task: Option<Box<TaskSpec>>,
    /// Only the `[privacy]` section, in a file of an earlier program. The next write stores the whole specification.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) privacy: Option<PrivacySpec>,
}

impl LedgerEnd {
    pub(crate) fn new(rows: u64, seal: String, task: &TaskSpec) -> Self {
        Self { rows, seal, task: Some(Box::new(task.clone())), privacy: None }
    }

    /// Whether the stored specification, or the privacy section if only that is stored, matches `spec`.
    pub(crate) fn promises(&self, spec: &TaskSpec) -> bool {
        match (&self.task, &self.privacy) {
            (Some(task), _) => **task == *spec,
            (None, Some(privacy)) => *privacy == spec.privacy,
            (None, None) => false,
        }
    }
}

/// The stored end of a ledger.
#[derive(Clone, Debug)]
pub(crate) enum StoredEnd {
    /// The file is missing at this location: the task is new or not private, or its file was lost.
    Nothing(String),
    End(LedgerEnd),
    /// The file at this location lacks a MAC of this key.
    Foreign(String),
}

/// Reasons why a verified ledger does not match its stored end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LedgerEndError {
    /// The file was changed, or written with another sealing key.
    #[error(
        "the file that says where the privacy ledger ends is not what was written, or was written with another seal.key: {0}"
    )]
    File(String),
    /// A private task without a file.
    #[error(
        "the file that says where the privacy ledger ends is gone ({0}), so releases after the backup cannot be ruled out if this \
         database was restored from one: put the newest one back, or cancel the task"
    )]
    Missing(String),
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
    /// The task's specification differs.
    #[error(
        "the task's specification is not what it was created with: it was edited in the database; restore it from a backup, or \
         cancel the task"
    )]
    Promise,
}

/// The files with the ends of ledgers. Every call may wait for a disk or a network.
pub(crate) struct LedgerEnds(SecretStore);

impl LedgerEnds {
    pub(crate) fn new(secret_store: SecretStore) -> Self {
        Self(secret_store)
    }

    /// The location of a task's file.
    pub(crate) fn place(&self, task: TaskId) -> String {
        self.0.place(&file_name(task))
    }

    /// Reads a task's file.
    ///
    /// # Errors
    /// Errors of the secret store.
    pub(crate) fn read(&self, task: TaskId) -> Result<Option<Bytes>> {
        self.0.read(&file_name(task))
    }

    /// Replaces a task's file by the result of `judge`, if any. Concurrent replacements by other processes are preserved.
    ///
    /// # Errors
    /// Errors of the secret store.
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
    /// Errors of the secret store.
    pub(crate) fn try_to_read(&self) -> Result<()> {
        self.0.read(PROBE).map(drop)
    }
}

fn file_name(task: TaskId) -> String {
    task.0.simple().to_string()
}
