//! Sessions: the state of an attempt's secure aggregation, in the encoding of `secure-agg`.

use async_trait::async_trait;
use bytes::Bytes;
use federation::id::Attempt;
use federation::time::Timestamp;

use crate::error::Result;

/// Reads and changes sessions.
#[async_trait]
pub trait Sessions {
    /// Stores the phase of an attempt's session, replacing the previous one. While there is one, the attempt needs its
    /// participants even after their inputs: see [`Assignments::pending_assignment`].
    ///
    /// # Errors
    /// `Conflict` if there is no such attempt.
    ///
    /// [`Assignments::pending_assignment`]: super::assignment::Assignments::pending_assignment
    async fn put_session(&mut self, attempt: Attempt, phase: &[u8], at: Timestamp) -> Result<()>;

    /// The phase of an attempt's session.
    async fn session(&mut self, attempt: Attempt) -> Result<Option<Bytes>>;

    /// Removes it and overwrites its bytes, as [`SessionMessages::clear_messages`] does. False if there was none.
    ///
    /// [`SessionMessages::clear_messages`]: super::session_message::SessionMessages::clear_messages
    async fn delete_session(&mut self, attempt: Attempt) -> Result<bool>;
}
