//! The privacy ledger in SQLite.

use async_trait::async_trait;
use federation::id::{Attempt, TaskId};

use super::SqliteTransaction;
use crate::entity::privacy_ledger::{PrivacyLedger, PrivacyRow};
use crate::error::{Result, StoreError};

record!("privacy_ledger", PrivacyRow { attempt, idx, published, created_at, row });

#[async_trait]
impl PrivacyLedger for SqliteTransaction {
    async fn append_privacy_row(&mut self, row: &PrivacyRow) -> Result<()> {
        let next = self.privacy_count(row.attempt.task).await?;
        if row.idx != next {
            return Err(StoreError::Conflict(format!("row {} of the privacy ledger: the next one is {next}", row.idx)));
        }
        self.insert(row).await
    }

    async fn privacy_rows(&mut self, task: TaskId, from_idx: u64, limit: u32) -> Result<Vec<PrivacyRow>> {
        self.list(
            "SELECT * FROM privacy_ledger WHERE task = ?1 AND idx >= ?2 ORDER BY idx LIMIT ?3",
            (task, from_idx, limit),
        )
        .await
    }

    async fn privacy_row_of(&mut self, attempt: Attempt) -> Result<Option<PrivacyRow>> {
        self.find("SELECT * FROM privacy_ledger WHERE task = ?1 AND number = ?2 AND attempt = ?3", attempt).await
    }

    async fn privacy_count(&mut self, task: TaskId) -> Result<u64> {
        self.get("SELECT count(*) FROM privacy_ledger WHERE task = ?1", task).await
    }

    async fn privacy_head(&mut self, task: TaskId) -> Result<Option<String>> {
        self.find("SELECT seal FROM privacy_head WHERE task = ?1", task).await
    }

    async fn set_privacy_head(&mut self, task: TaskId, seal: &str) -> Result<()> {
        self.must_change_one(
            "INSERT INTO privacy_head (task, seal) VALUES (?1, ?2)
             ON CONFLICT (task) DO UPDATE SET seal = excluded.seal",
            (task, seal),
        )
        .await
    }
}
