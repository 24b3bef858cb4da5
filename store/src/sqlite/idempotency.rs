//! Idempotency keys in SQLite.

use async_trait::async_trait;
use federation::time::Timestamp;

use super::SqliteTransaction;
use super::row::{Bind as _, Columns as _};
use super::statement::query;
use crate::entity::idempotency::{IdempotencyKeys, IdempotentAnswer};
use crate::error::{Result, StoreError};

#[async_trait]
impl IdempotencyKeys for SqliteTransaction {
    async fn find_idempotent(&mut self, scope: &str, key: &str) -> Result<Option<IdempotentAnswer>> {
        let row = self
            .find(query("SELECT * FROM idempotency_key WHERE scope = ?1 AND key = ?2").bind(scope).bind(key))
            .await?;
        row.map(|row| {
            let status = u16::try_from(row.small("status")?);
            Ok(IdempotentAnswer {
                request_sha256: row.digest("request_sha256")?,
                status: status.map_err(|_| StoreError::corrupt("an HTTP status above 65535"))?,
                body: row.bytes("body")?,
            })
        })
        .transpose()
    }

    async fn insert_idempotent(
        &mut self,
        scope: &str,
        key: &str,
        answer: &IdempotentAnswer,
        expires_at: Timestamp,
    ) -> Result<()> {
        self.insert(
            query(
                "INSERT INTO idempotency_key (scope, key, request_sha256, status, body, expires_at)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            )
            .bind(scope)
            .bind(key)
            .digest(answer.request_sha256)
            .bind(answer.status)
            .bind(answer.body.as_slice())
            .time(expires_at),
        )
        .await
    }

    async fn expire_idempotent(&mut self, now: Timestamp) -> Result<u32> {
        self.count_changes(query("DELETE FROM idempotency_key WHERE expires_at <= ?1").time(now)).await
    }
}
