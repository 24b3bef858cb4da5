//! The privacy ledger in SQLite.

use async_trait::async_trait;
use federation::id::{Attempt, TaskId};

use super::SqliteTransaction;
use super::row::{Bind as _, Columns as _, each, integer};
use super::statement::{SqliteRow, query};
use crate::entity::privacy_ledger::{PrivacyLedger, PrivacyRow};
use crate::error::{Result, StoreError};

#[async_trait]
impl PrivacyLedger for SqliteTransaction {
    async fn append_privacy_row(&mut self, row: &PrivacyRow) -> Result<()> {
        let next = self.privacy_count(row.attempt.task).await?;
        if row.idx != next {
            return Err(StoreError::Conflict(format!("row {} of the privacy ledger: the next one is {next}", row.idx)));
        }
        self.insert(
            query(
                "INSERT INTO privacy_ledger (task, number, attempt, idx, published, created_at, row)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            )
            .attempt(row.attempt)
            .bind(integer(row.idx)?)
            .bind(i64::from(row.published))
            .time(row.created_at)
            .bind(&row.row),
        )
        .await
    }

    async fn privacy_rows(&mut self, task: TaskId, from_idx: u64, limit: u32) -> Result<Vec<PrivacyRow>> {
        let rows = self
            .list(
                query("SELECT * FROM privacy_ledger WHERE task = ?1 AND idx >= ?2 ORDER BY idx LIMIT ?3")
                    .bind(task.0)
                    .bind(integer(from_idx)?)
                    .bind(limit),
            )
            .await?;
        each(&rows, read)
    }

    async fn privacy_row_of(&mut self, attempt: Attempt) -> Result<Option<PrivacyRow>> {
        let row = self
            .find(
                query("SELECT * FROM privacy_ledger WHERE task = ?1 AND number = ?2 AND attempt = ?3").attempt(attempt),
            )
            .await?;
        row.as_ref().map(read).transpose()
    }

    async fn privacy_count(&mut self, task: TaskId) -> Result<u64> {
        let row = self.find(query("SELECT count(*) AS count FROM privacy_ledger WHERE task = ?1").bind(task.0)).await?;
        row.map_or(Ok(0), |row| row.large("count"))
    }

    async fn privacy_head(&mut self, task: TaskId) -> Result<Option<String>> {
        let row = self.find(query("SELECT seal FROM privacy_head WHERE task = ?1").bind(task.0)).await?;
        row.map(|row| row.text("seal")).transpose()
    }

    async fn set_privacy_head(&mut self, task: TaskId, seal: &str) -> Result<()> {
        self.insert(
            query(
                "INSERT INTO privacy_head (task, seal) VALUES (?1, ?2)
                 ON CONFLICT (task) DO UPDATE SET seal = excluded.seal",
            )
            .bind(task.0)
            .bind(seal),
        )
        .await
    }
}

fn read(row: &SqliteRow) -> Result<PrivacyRow> {
    Ok(PrivacyRow {
        attempt: row.attempt()?,
        idx: row.large("idx")?,
        published: row.flag("published")?,
        row: row.text("row")?,
        created_at: row.time("created_at")?,
    })
}
