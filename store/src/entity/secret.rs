//! Secrets: seeds of noise, or noised sums without a seed, stored once so that a round computed again after a crash has
//! the same noise.
//!
//! They arrive sealed with a key that is not in this database.

use async_trait::async_trait;
use federation::id::Attempt;

use crate::error::Result;

/// Reads and changes secrets. Number 0 and attempt 0 stand for the whole task.
#[async_trait]
pub trait Secrets {
    /// Stores a sealed secret of 1 to 4096 bytes unless there is one for this purpose (1 to 64 characters); returns the
    /// stored one, so that the first writer wins.
    ///
    /// # Errors
    /// `Conflict` if there is no such task, or a length is out of its bounds.
    async fn put_secret_if_absent(&mut self, attempt: Attempt, purpose: &str, sealed: &[u8]) -> Result<Vec<u8>>;

    /// The sealed secret for a purpose.
    async fn secret(&mut self, attempt: Attempt, purpose: &str) -> Result<Option<Vec<u8>>>;

    /// Removes it and overwrites its bytes, as [`SessionMessages::clear_messages`] does. False if there was none.
    ///
    /// [`SessionMessages::clear_messages`]: super::session_message::SessionMessages::clear_messages
    async fn forget_secret(&mut self, attempt: Attempt, purpose: &str) -> Result<bool>;
}
