//! Noised sums: the one released sum of an attempt. Its row decides; what comes after is a pure function of it.

use async_trait::async_trait;
use federation::id::{Attempt, Digest};
use federation::time::Timestamp;

use crate::error::Result;

/// The sum that was released.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoisedSumRow {
    /// The attempt.
    pub attempt: Attempt,
    /// Address of the sum's blob.
    pub blob: Digest,
    /// How many inputs it holds.
    pub participants: u32,
    /// When it was released.
    pub created_at: Timestamp,
    /// What it took, if that was measured.
    pub work: Option<SumWork>,
}

/// What it took to make a sum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SumWork {
    /// What added the inputs.
    pub sum_device: String,
    /// What made the masks that were taken off.
    pub unmask_device: String,
    /// Time of adding, in milliseconds.
    pub sum_ms: u64,
    /// Time of taking the masks off, in milliseconds.
    pub unmask_ms: u64,
    /// Bytes of masks that were made.
    pub keystream_bytes: u64,
}

/// Reads and changes noised sums.
#[async_trait]
pub trait NoisedSums {
    /// Stores the sum if the attempt has none. False if it has one, which stays.
    async fn insert_noised_sum(&mut self, sum: &NoisedSumRow) -> Result<bool>;

    /// The sum of an attempt.
    async fn noised_sum(&mut self, attempt: Attempt) -> Result<Option<NoisedSumRow>>;
}
