//! Noised sums in SQLite.

use async_trait::async_trait;
use federation::id::Attempt;

use super::SqliteTransaction;
use super::row::{FromRow, SqliteRow};
use crate::entity::noised_sum::{NoisedSumRow, NoisedSums, SumWork};
use crate::error::Result;

columns!(SumWork { sum_device, unmask_device, sum_ms, unmask_ms, keystream_bytes });

#[async_trait]
impl NoisedSums for SqliteTransaction {
    async fn insert_noised_sum(&mut self, sum: &NoisedSumRow) -> Result<bool> {
        let work = sum.work.as_ref();
        self.change_one(
            "INSERT INTO noised_sum (task, number, attempt, blob, participants, created_at,
                                     sum_device, unmask_device, sum_ms, unmask_ms, keystream_bytes)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
             ON CONFLICT (task, number, attempt) DO NOTHING",
            (
                (sum.attempt, sum.blob, sum.participants, sum.created_at),
                work.map(|work| &work.sum_device),
                work.map(|work| &work.unmask_device),
                work.map(|work| work.sum_ms),
                work.map(|work| work.unmask_ms),
                work.map(|work| work.keystream_bytes),
            ),
        )
        .await
    }

    async fn noised_sum(&mut self, attempt: Attempt) -> Result<Option<NoisedSumRow>> {
        self.find("SELECT * FROM noised_sum WHERE task = ?1 AND number = ?2 AND attempt = ?3", attempt).await
    }
}

impl FromRow for NoisedSumRow {
    fn from_row(row: &SqliteRow<'_>) -> Result<Self> {
        Ok(Self {
            attempt: Attempt::from_row(row)?,
            blob: row.get("blob")?,
            participants: row.get("participants")?,
            created_at: row.get("created_at")?,
            work: Option::from_row(row)?,
        })
    }
}

impl FromRow for Option<SumWork> {
    fn from_row(row: &SqliteRow<'_>) -> Result<Self> {
        let measured = row.get::<Option<String>>("sum_device")?.is_some();
        measured.then(|| SumWork::from_row(row)).transpose()
    }
}
