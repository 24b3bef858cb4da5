//! Noised sums in SQLite.

use async_trait::async_trait;
use federation::id::Attempt;

use super::SqliteTransaction;
use super::row::{Bind as _, Columns as _, integer};
use super::statement::{SqliteRow, query};
use crate::entity::noised_sum::{NoisedSumRow, NoisedSums, SumWork};
use crate::error::Result;

#[async_trait]
impl NoisedSums for SqliteTransaction {
    async fn insert_noised_sum(&mut self, sum: &NoisedSumRow) -> Result<bool> {
        let work = sum.work.as_ref();
        let number = |pick: fn(&SumWork) -> u64| work.map(pick).map(integer).transpose();
        self.change_one(
            query(
                "INSERT INTO noised_sum (task, number, attempt, blob, participants, created_at,
                                         sum_device, unmask_device, sum_ms, unmask_ms, keystream_bytes)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
                 ON CONFLICT (task, number, attempt) DO NOTHING",
            )
            .attempt(sum.attempt)
            .digest(sum.blob)
            .bind(sum.participants)
            .time(sum.created_at)
            .bind(work.map(|work| &*work.sum_device))
            .bind(work.map(|work| &*work.unmask_device))
            .bind(number(|work| work.sum_ms)?)
            .bind(number(|work| work.unmask_ms)?)
            .bind(number(|work| work.keystream_bytes)?),
        )
        .await
    }

    async fn noised_sum(&mut self, attempt: Attempt) -> Result<Option<NoisedSumRow>> {
        let row = self
            .find(query("SELECT * FROM noised_sum WHERE task = ?1 AND number = ?2 AND attempt = ?3").attempt(attempt))
            .await?;
        row.map(|row| {
            Ok(NoisedSumRow {
                attempt: row.attempt()?,
                blob: row.digest("blob")?,
                participants: row.small("participants")?,
                created_at: row.time("created_at")?,
                work: read_work(&row)?,
            })
        })
        .transpose()
    }
}

pub(super) fn read_work(row: &SqliteRow) -> Result<Option<SumWork>> {
    let Some(sum_device) = row.optional_text("sum_device")? else { return Ok(None) };
    Ok(Some(SumWork {
        sum_device,
        unmask_device: row.text("unmask_device")?,
        sum_ms: row.large("sum_ms")?,
        unmask_ms: row.large("unmask_ms")?,
        keystream_bytes: row.large("keystream_bytes")?,
    }))
}
