//! Idempotency keys: stored answers for repeated requests.

use async_trait::async_trait;
use federation::id::Digest;
use federation::time::Timestamp;

use crate::error::Result;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdempotentAnswer {
    /// Of the request: using the key for another request is an error of the caller.
    pub request_sha256: Digest,
    pub status: u16,
    pub body: Vec<u8>,
}

/// Reads and changes idempotency keys.
#[async_trait]
pub trait IdempotencyKeys {
    /// The answer stored under this key.
    async fn find_idempotent(&mut self, scope: &str, key: &str) -> Result<Option<IdempotentAnswer>>;

    /// Stores an answer.
    ///
    /// # Errors
    /// `Conflict` if the key is in use in this scope.
    async fn insert_idempotent(
        &mut self,
        scope: &str,
        key: &str,
        answer: &IdempotentAnswer,
        expires_at: Timestamp,
    ) -> Result<()>;

    /// Removes answers that have expired by `now`; returns their number.
    async fn expire_idempotent(&mut self, now: Timestamp) -> Result<u32>;
}
