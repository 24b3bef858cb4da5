//! Partial sums: the progress of an attempt's summation.

use federation::id::{Attempt, Digest};

use crate::error::Result;
use crate::transaction::Transaction;

/// The sum of all folded inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartialSum {
    pub attempt: Attempt,
    /// Address of the sum's blob.
    pub blob: Digest,
    /// Number of inputs in it.
    pub inputs: u32,
}

record!("partial_sum", PartialSum { attempt, blob, inputs });

impl Transaction<'_> {
    /// The partial sum of an attempt.
    pub async fn partial_sum(&mut self, attempt: Attempt) -> Result<Option<PartialSum>> {
        self.find("SELECT * FROM partial_sum WHERE task = ?1 AND number = ?2 AND attempt = ?3", attempt).await
    }

    /// Compare and swap: stores `sum` if the attempt's current blob is `expected_previous` (`None`: it has no sum yet).
    /// Returns false if another writer was faster.
    ///
    /// # Errors
    /// `BeingRemoved`.
    pub async fn put_partial_sum(&mut self, sum: &PartialSum, expected_previous: Option<Digest>) -> Result<bool> {
        self.must_not_be_doomed(sum.blob).await?;
        let Some(previous) = expected_previous else { return self.insert_if_absent(sum).await };
        self.change_one(
            "UPDATE partial_sum SET blob = ?4, inputs = ?5
             WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND blob = ?6",
            (sum, previous),
        )
        .await
    }

    /// Removes the partial sum. Returns false if it was missing.
    pub async fn delete_partial_sum(&mut self, attempt: Attempt) -> Result<bool> {
        self.change_one("DELETE FROM partial_sum WHERE task = ?1 AND number = ?2 AND attempt = ?3", attempt).await
    }
}
