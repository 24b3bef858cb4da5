//! Sessions: how far the secure aggregation of an attempt has come, in words of the crate that does it.

use async_trait::async_trait;
use bytes::Bytes;
use federation::id::Attempt;
use federation::time::Timestamp;

use crate::error::Result;

/// Reads and changes sessions.
#[async_trait]
pub trait Sessions {
    /// Stores the phase of an attempt's session; it replaces the one before. While there is one, the attempt needs its
    /// participants beyond their inputs: see [`Assignments::pending_assignment`].
    ///
    /// # Errors
    /// `Conflict` if there is no such attempt.
    ///
    /// [`Assignments::pending_assignment`]: super::assignment::Assignments::pending_assignment
    async fn put_session(&mut self, attempt: Attempt, phase: &[u8], at: Timestamp) -> Result<()>;

    /// The phase of an attempt's session.
    async fn session(&mut self, attempt: Attempt) -> Result<Option<Bytes>>;

    /// Removes it; its bytes are overwritten, as [`SessionMessages::clear_messages`] says. False if there was none.
    ///
    /// [`SessionMessages::clear_messages`]: super::session_message::SessionMessages::clear_messages
    async fn delete_session(&mut self, attempt: Attempt) -> Result<bool>;
}
