//! The blobs that rows still need; every other blob is garbage.

use std::collections::HashSet;

use async_trait::async_trait;
use federation::id::Digest;

use crate::error::Result;

/// Collects the blob addresses in all rows.
#[async_trait]
pub trait BlobReferences {
    /// Addresses that rows need: of model versions always; of optimizer states for the two newest versions of a task
    /// and the base of an open round; of partial and noised sums until their round has ended; of admitted inputs until
    /// they are folded or their round has ended.
    async fn referenced_blobs(&mut self) -> Result<HashSet<Digest>>;
}
