//! Idempotency keys: the answer to a request that may come again.

use async_trait::async_trait;
use federation::id::Digest;
use federation::time::Timestamp;

use crate::error::Result;

/// An answer that was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdempotentAnswer {
    /// Of the request: another request under the same key is a mistake of the caller.
    pub request_sha256: Digest,
    /// HTTP status of the answer.
    pub status: u16,
    /// Body of the answer.
    pub body: Vec<u8>,
}

/// Reads and changes idempotency keys.
#[async_trait]
pub trait IdempotencyKeys {
    /// The answer given under this key.
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

    /// Removes those that expired by `now`; says how many.
    async fn expire_idempotent(&mut self, now: Timestamp) -> Result<u32>;
}
