//! The privacy ledger: the cost of every release of a task. Rows are never changed or deleted.
//!
//! The store keeps only the order of rows; their author checks content and seals.

use async_trait::async_trait;
use federation::id::{RoundKey, TaskId};
use federation::time::Timestamp;

use crate::error::Result;

/// A row of the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrivacyRow {
    pub round: RoundKey,
    pub attempt: u32,
    /// From 0 within the task, without gaps.
    pub idx: u64,
    /// False if the attempt failed, and is charged because its sum may have been opened.
    pub published: bool,
    /// The sealed row, as JSON.
    pub row: String,
    pub created_at: Timestamp,
}

/// Reads and extends ledgers.
#[async_trait]
pub trait PrivacyLedger {
    /// Appends a row.
    ///
    /// # Errors
    /// `Conflict` if its `idx` is not the number of rows so far, the attempt was charged before, there is no such
    /// attempt, or the row is not JSON.
    async fn append_privacy_row(&mut self, row: &PrivacyRow) -> Result<()>;

    /// Rows from `from_idx` on, in order.
    async fn privacy_rows(&mut self, task: TaskId, from_idx: u64, limit: u32) -> Result<Vec<PrivacyRow>>;

    /// The charge of an attempt.
    async fn privacy_row_of(&mut self, key: RoundKey, attempt: u32) -> Result<Option<PrivacyRow>>;

    /// Number of rows of the task.
    async fn privacy_count(&mut self, task: TaskId) -> Result<u64>;

    /// The seal of the newest row, as stored apart from the rows.
    async fn privacy_head(&mut self, task: TaskId) -> Result<Option<String>>;

    /// Stores the seal of the last row, of 1 to 128 characters: in the transaction that adds the row.
    ///
    /// # Errors
    /// `Conflict` if there is no such task, or the seal is empty or too long.
    async fn set_privacy_head(&mut self, task: TaskId, seal: &str) -> Result<()>;
}
