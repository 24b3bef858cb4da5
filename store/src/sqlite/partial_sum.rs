//! Partial sums in SQLite.

use async_trait::async_trait;
use federation::id::{Attempt, Digest};

use super::SqliteTransaction;
use super::row::{Bind as _, Columns as _};
use super::statement::query;
use crate::entity::partial_sum::{PartialSum, PartialSums};
use crate::error::Result;

#[async_trait]
impl PartialSums for SqliteTransaction {
    async fn partial_sum(&mut self, attempt: Attempt) -> Result<Option<PartialSum>> {
        let row = self
            .find(query("SELECT * FROM partial_sum WHERE task = ?1 AND number = ?2 AND attempt = ?3").attempt(attempt))
            .await?;
        row.map(|row| {
            Ok(PartialSum { attempt: row.attempt()?, blob: row.digest("blob")?, inputs: row.small("inputs")? })
        })
        .transpose()
    }

    async fn put_partial_sum(&mut self, sum: &PartialSum, expected_previous: Option<Digest>) -> Result<bool> {
        let put = match expected_previous {
            None => query(
                "INSERT INTO partial_sum (task, number, attempt, blob, inputs) VALUES (?1, ?2, ?3, ?4, ?5)
                 ON CONFLICT DO NOTHING",
            ),
            Some(_) => query(
                "UPDATE partial_sum SET blob = ?4, inputs = ?5
                 WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND blob = ?6",
            ),
        };
        let put = put.attempt(sum.attempt).digest(sum.blob).bind(sum.inputs);
        let put = match expected_previous {
            None => put,
            Some(previous) => put.digest(previous),
        };
        self.change_one(put).await
    }

    async fn delete_partial_sum(&mut self, attempt: Attempt) -> Result<bool> {
        self.change_one(
            query("DELETE FROM partial_sum WHERE task = ?1 AND number = ?2 AND attempt = ?3").attempt(attempt),
        )
        .await
    }
}
