//! Idempotency keys in SQLite.

use async_trait::async_trait;
use federation::time::Timestamp;

use super::SqliteTransaction;
use crate::entity::idempotency::{IdempotencyKeys, IdempotentAnswer};
use crate::error::Result;

columns!(IdempotentAnswer { request_sha256, status, body });

#[async_trait]
impl IdempotencyKeys for SqliteTransaction {
    async fn find_idempotent(&mut self, scope: &str, key: &str) -> Result<Option<IdempotentAnswer>> {
        self.find("SELECT * FROM idempotency_key WHERE scope = ?1 AND key = ?2", (scope, key)).await
    }

    async fn insert_idempotent(
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

    async fn expire_idempotent(&mut self, now: Timestamp) -> Result<u32> {
        self.change("DELETE FROM idempotency_key WHERE expires_at <= ?1", now).await
    }
}
