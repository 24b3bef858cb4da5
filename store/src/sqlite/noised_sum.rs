//! Noised sums in SQLite.

use async_trait::async_trait;
use federation::id::RoundKey;
use sqlx::query;

use super::SqliteTransaction;
use super::row::{Bind as _, Columns as _};
use crate::entity::noised_sum::{NoisedSumRow, NoisedSums};
use crate::error::Result;

#[async_trait]
impl NoisedSums for SqliteTransaction {
    async fn insert_noised_sum(&mut self, sum: &NoisedSumRow) -> Result<bool> {
        self.change_one(
            query(
                "INSERT INTO noised_sum (task, number, attempt, blob, participants, created_at)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)
                 ON CONFLICT DO NOTHING",
            )
            .attempt(sum.round, sum.attempt)
            .digest(sum.blob)
            .bind(sum.participants)
            .time(sum.created_at),
        )
        .await
    }

    async fn noised_sum(&mut self, key: RoundKey, attempt: u32) -> Result<Option<NoisedSumRow>> {
        let row = self
            .find(
                query("SELECT * FROM noised_sum WHERE task = ?1 AND number = ?2 AND attempt = ?3")
                    .attempt(key, attempt),
            )
            .await?;
        row.map(|row| {
            Ok(NoisedSumRow {
                round: row.round_key()?,
                attempt: row.small("attempt")?,
                blob: row.digest("blob")?,
                participants: row.small("participants")?,
                created_at: row.time("created_at")?,
            })
        })
        .transpose()
    }
}
