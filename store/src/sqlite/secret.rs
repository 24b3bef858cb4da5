//! Secrets in SQLite.

use async_trait::async_trait;
use federation::id::Attempt;

use super::SqliteTransaction;
use crate::entity::secret::Secrets;
use crate::error::{Result, StoreError};

#[async_trait]
impl Secrets for SqliteTransaction {
    async fn put_secret_if_absent(&mut self, attempt: Attempt, purpose: &str, sealed: &[u8]) -> Result<Vec<u8>> {
        self.change_one(
            "INSERT INTO secret (task, number, attempt, purpose, sealed) VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT (task, number, attempt, purpose) DO NOTHING",
            (attempt, purpose, sealed),
        )
        .await?;
        let stored = self.secret(attempt, purpose).await?;
        stored.ok_or_else(|| StoreError::corrupt("a secret exists and does not"))
    }

    async fn secret(&mut self, attempt: Attempt, purpose: &str) -> Result<Option<Vec<u8>>> {
        self.find(
            "SELECT sealed FROM secret WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND purpose = ?4",
            (attempt, purpose),
        )
        .await
    }

    async fn forget_secret(&mut self, attempt: Attempt, purpose: &str) -> Result<bool> {
        self.change_one(
            "DELETE FROM secret WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND purpose = ?4",
            (attempt, purpose),
        )
        .await
    }
}
