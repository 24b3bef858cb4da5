//! Secrets: seeds of noise, or noised sums without a seed, stored once so that a round computed again after a crash has
//! the same noise.
//!
//! They arrive sealed with a key that is not in this database. Number 0 and attempt 0 stand for the whole task.

use federation::id::Attempt;

use crate::error::{Result, StoreError};
use crate::transaction::Transaction;

impl Transaction<'_> {
    /// Stores a sealed secret of 1 to 4096 bytes unless there is one for this purpose (1 to 64 characters); returns the
    /// stored one, so that the first writer wins.
    ///
    /// # Errors
    /// `Conflict` if the task does not exist, or a length is out of its bounds.
    pub async fn put_secret_if_absent(&mut self, attempt: Attempt, purpose: &str, sealed: &[u8]) -> Result<Vec<u8>> {
        self.change_one(
            "INSERT INTO secret (task, number, attempt, purpose, sealed) VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT (task, number, attempt, purpose) DO NOTHING",
            (attempt, purpose, sealed),
        )
        .await?;
        let stored = self.secret(attempt, purpose).await?;
        stored.ok_or_else(|| StoreError::corrupt("a secret exists and does not"))
    }

    /// The sealed secret for a purpose.
    pub async fn secret(&mut self, attempt: Attempt, purpose: &str) -> Result<Option<Vec<u8>>> {
        self.find(
            "SELECT sealed FROM secret WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND purpose = ?4",
            (attempt, purpose),
        )
        .await
    }

    /// Removes it and overwrites its bytes, as [`Transaction::clear_messages`] does. Returns false if it was missing.
    pub async fn forget_secret(&mut self, attempt: Attempt, purpose: &str) -> Result<bool> {
        self.change_one(
            "DELETE FROM secret WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND purpose = ?4",
            (attempt, purpose),
        )
        .await
    }
}
