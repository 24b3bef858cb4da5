//! Partial sums: how far the summing of an attempt has come.

use async_trait::async_trait;
use federation::id::{Attempt, Digest};

use crate::error::Result;

/// The sum of all inputs marked as folded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartialSum {
    /// The attempt.
    pub attempt: Attempt,
    /// Address of the sum's blob.
    pub blob: Digest,
    /// How many inputs it holds.
    pub inputs: u32,
}

/// Reads and changes partial sums.
#[async_trait]
pub trait PartialSums {
    /// The partial sum of an attempt.
    async fn partial_sum(&mut self, attempt: Attempt) -> Result<Option<PartialSum>>;

    /// Compare and swap: stores `sum` if the attempt's present one is `expected_previous` (none: there is none). False
    /// if somebody else was faster.
    async fn put_partial_sum(&mut self, sum: &PartialSum, expected_previous: Option<Digest>) -> Result<bool>;

    /// Removes it. False if there was none.
    async fn delete_partial_sum(&mut self, attempt: Attempt) -> Result<bool>;
}
