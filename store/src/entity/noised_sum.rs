//! Noised sums: the one released sum of an attempt. Its row decides; everything later is a pure function of it.

use async_trait::async_trait;
use federation::id::{Attempt, Digest};
use federation::time::Timestamp;

use crate::error::Result;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoisedSumRow {
    pub attempt: Attempt,
    /// Address of the sum's blob.
    pub blob: Digest,
    /// Number of inputs in it.
    pub participants: u32,
    pub created_at: Timestamp,
    /// The cost, if it was measured.
    pub work: Option<SumWork>,
}

/// The cost of a sum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SumWork {
    /// Device that added the inputs.
    pub sum_device: String,
    /// Device that generated the masks.
    pub unmask_device: String,
    /// Time of adding, in milliseconds.
    pub sum_ms: u64,
    /// Time of removing the masks, in milliseconds.
    pub unmask_ms: u64,
    /// Bytes of keystream generated.
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
