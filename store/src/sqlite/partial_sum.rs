//! Partial sums in SQLite.

use async_trait::async_trait;
use federation::id::{Attempt, Digest};

use super::SqliteTransaction;
use crate::entity::partial_sum::{PartialSum, PartialSums};
use crate::error::Result;

record!("partial_sum", PartialSum { attempt, blob, inputs });

#[async_trait]
impl PartialSums for SqliteTransaction {
    async fn partial_sum(&mut self, attempt: Attempt) -> Result<Option<PartialSum>> {
        self.find("SELECT * FROM partial_sum WHERE task = ?1 AND number = ?2 AND attempt = ?3", attempt).await
    }

    async fn put_partial_sum(&mut self, sum: &PartialSum, expected_previous: Option<Digest>) -> Result<bool> {
        let Some(previous) = expected_previous else { return self.insert_if_absent(sum).await };
        self.change_one(
            "UPDATE partial_sum SET blob = ?4, inputs = ?5
             WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND blob = ?6",
            (sum, previous),
        )
        .await
    }

    async fn delete_partial_sum(&mut self, attempt: Attempt) -> Result<bool> {
        self.change_one("DELETE FROM partial_sum WHERE task = ?1 AND number = ?2 AND attempt = ?3", attempt).await
    }
}
