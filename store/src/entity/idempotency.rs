//! Idempotency keys: stored answers for repeated requests.

use federation::id::Digest;
use federation::time::Timestamp;

use crate::error::Result;
use crate::transaction::Transaction;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdempotentAnswer {
    /// Of the request: using the key for another request is an error of the caller.
    pub request_sha256: Digest,
    pub status: u16,
    pub body: Vec<u8>,
}

columns!(IdempotentAnswer { request_sha256, status, body });

impl Transaction<'_> {
    /// The answer stored under this key.
    pub async fn find_idempotent(&mut self, scope: &str, key: &str) -> Result<Option<IdempotentAnswer>> {
        self.find("SELECT * FROM idempotency_key WHERE scope = ?1 AND key = ?2", (scope, key)).await
    }

    /// Stores an answer.
    ///
    /// # Errors
    /// `Conflict` if the key is in use in this scope.
    pub async fn insert_idempotent(
        &mut self,
        scope: &str,
        key: &str,
        answer: &IdempotentAnswer,
        expires_at: Timestamp,
    ) -> Result<()> {
        self.must_change_one(
            "INSERT INTO idempotency_key (scope, key, request_sha256, status, body, expires_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            (scope, key, answer.request_sha256, answer.status, &answer.body, expires_at),
        )
        .await
    }

    /// Removes answers that have expired by `now`; returns their number.
    pub async fn expire_idempotent(&mut self, now: Timestamp) -> Result<u32> {
        self.change("DELETE FROM idempotency_key WHERE expires_at <= ?1", now).await
    }
}
