//! The privacy ledger: the cost of every release of a task. Rows are immutable.
//!
//! The store keeps only the order of rows; their author checks content and seals.

use federation::id::{Attempt, TaskId};
use federation::time::Timestamp;

use crate::error::{Result, StoreError};
use crate::transaction::Transaction;

/// A row of the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrivacyRow {
    /// The attempt that is charged.
    pub attempt: Attempt,
    /// Counts from 0 within the task, without gaps.
    pub idx: u64,
    /// False if the attempt failed, and is charged because its sum may have been opened.
    pub published: bool,
    /// The sealed row, as JSON.
    pub row: String,
    pub created_at: Timestamp,
}

record!("privacy_ledger", PrivacyRow { attempt, idx, published, created_at, row });

impl Transaction<'_> {
    /// Appends a row.
    ///
    /// # Errors
    /// `Conflict` if its `idx` is not the number of rows so far, the attempt was charged before or does not exist, or
    /// the row is not JSON.
    pub async fn append_privacy_row(&mut self, row: &PrivacyRow) -> Result<()> {
        let next = self.privacy_count(row.attempt.task).await?;
        if row.idx != next {
            return Err(StoreError::Conflict(format!("row {} of the privacy ledger: the next one is {next}", row.idx)));
        }
        self.insert(row).await
    }

    /// Rows from `from_idx` on, in order.
    pub async fn privacy_rows(&mut self, task: TaskId, from_idx: u64, limit: u32) -> Result<Vec<PrivacyRow>> {
        self.list(
            "SELECT * FROM privacy_ledger WHERE task = ?1 AND idx >= ?2 ORDER BY idx LIMIT ?3",
            (task, from_idx, limit),
        )
        .await
    }

    /// The charge of an attempt.
    pub async fn privacy_row_of(&mut self, attempt: Attempt) -> Result<Option<PrivacyRow>> {
        self.find("SELECT * FROM privacy_ledger WHERE task = ?1 AND number = ?2 AND attempt = ?3", attempt).await
    }

    /// Number of rows of the task.
    pub async fn privacy_count(&mut self, task: TaskId) -> Result<u64> {
        self.get("SELECT count(*) FROM privacy_ledger WHERE task = ?1", task).await
    }

    /// The seal of the newest row, stored separately from the rows.
    pub async fn privacy_head(&mut self, task: TaskId) -> Result<Option<String>> {
        self.find("SELECT seal FROM privacy_head WHERE task = ?1", task).await
    }

    /// Stores the seal of the last row, of 1 to 128 characters: in the transaction that adds the row.
    ///
    /// # Errors
    /// `Conflict` if the task does not exist, or the seal is empty or too long.
    pub async fn set_privacy_head(&mut self, task: TaskId, seal: &str) -> Result<()> {
        self.must_change_one(
            "INSERT INTO privacy_head (task, seal) VALUES (?1, ?2)
             ON CONFLICT (task) DO UPDATE SET seal = excluded.seal",
            (task, seal),
        )
        .await
    }
}
