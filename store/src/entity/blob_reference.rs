//! Which blobs the rows still need; every other blob is garbage.

use std::collections::HashSet;

use async_trait::async_trait;
use federation::id::Digest;

use crate::error::Result;

/// Looks through all rows for addresses of blobs.
#[async_trait]
pub trait BlobReferences {
    /// Addresses that rows need: model versions always; optimizer states of the two newest versions of a task and of those
    /// that an open round goes on from; partial and noised sums until their round has ended; admitted inputs until the
    /// partial sum holds them or their round has ended.
    async fn referenced_blobs(&mut self) -> Result<HashSet<Digest>>;
}
