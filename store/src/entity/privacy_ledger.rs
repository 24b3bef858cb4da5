//! The privacy ledger: what every release of a task cost. Rows are never changed or deleted.
//!
//! What a row says, and whether its seal fits, is for whoever wrote it to judge; here rows only have their places.

use async_trait::async_trait;
use federation::id::{Attempt, TaskId};
use federation::time::Timestamp;

use crate::error::Result;

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
    /// When it was charged.
    pub created_at: Timestamp,
}

/// Reads and extends ledgers.
#[async_trait]
pub trait PrivacyLedger {
    /// Adds a row at the end.
    ///
    /// # Errors
    /// `Conflict` if its `idx` is not the number of rows so far, the attempt was charged before, there is no such attempt,
    /// or the row is no JSON.
    async fn append_privacy_row(&mut self, row: &PrivacyRow) -> Result<()>;

    /// Rows from `from_idx` on, in order.
    async fn privacy_rows(&mut self, task: TaskId, from_idx: u64, limit: u32) -> Result<Vec<PrivacyRow>>;

    /// What an attempt was charged.
    async fn privacy_row_of(&mut self, attempt: Attempt) -> Result<Option<PrivacyRow>>;

    /// How many rows the task has.
    async fn privacy_count(&mut self, task: TaskId) -> Result<u64>;

    /// The seal of the newest row as it was noted apart from the rows.
    async fn privacy_head(&mut self, task: TaskId) -> Result<Option<String>>;

    /// Notes where the ledger ends, of 1 to 128 characters: in the transaction that adds the row.
    ///
    /// # Errors
    /// `Conflict` if there is no such task, or the seal is empty or too long.
    async fn set_privacy_head(&mut self, task: TaskId, seal: &str) -> Result<()>;
}
