//! Partial sums: the progress of an attempt's summation.

use async_trait::async_trait;
use federation::id::{Attempt, Digest};

use crate::error::Result;

/// The sum of all folded inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartialSum {
    pub attempt: Attempt,
    /// Address of the sum's blob.
    pub blob: Digest,
    /// Number of inputs in it.
    pub inputs: u32,
}

/// Reads and changes partial sums.
#[async_trait]
pub trait PartialSums {
    /// The partial sum of an attempt.
    async fn partial_sum(&mut self, attempt: Attempt) -> Result<Option<PartialSum>>;

    /// Compare and swap: stores `sum` if the attempt's current blob is `expected_previous` (`None`: no sum yet). False
    /// if another writer was faster.
    async fn put_partial_sum(&mut self, sum: &PartialSum, expected_previous: Option<Digest>) -> Result<bool>;

    /// Removes it. False if there was none.
    async fn delete_partial_sum(&mut self, attempt: Attempt) -> Result<bool>;
}
