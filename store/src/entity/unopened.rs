//! Sessions that ended without a sum after inputs had left, and what their members said of them.

use async_trait::async_trait;
use bytes::Bytes;
use federation::id::{Attempt, Digest, ParticipantId, RoundKey};
use federation::time::Timestamp;

use crate::error::Result;

/// What members are shown again of such a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnopenedSession {
    /// Which of the cohort's groups it was of; 0 where it is not divided.
    pub group: u32,
    /// How many statements prove that it was never opened.
    pub needed: u16,
    /// The roster, as it was announced.
    pub roster: Bytes,
}

/// That a member left a session for good and never answered in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AbortStatement {
    /// Of which attempt.
    pub attempt: Attempt,
    /// Who.
    pub participant: ParticipantId,
    /// In which of the cohort's groups; 0 where it is not divided.
    pub group: u32,
    /// As it was sent.
    pub statement: Bytes,
    /// When it came.
    pub received_at: Timestamp,
}

/// Reads and changes them. Nothing of it is ever removed.
#[async_trait]
pub trait Unopened {
    /// Keeps the sessions of an attempt that ends without a sum.
    ///
    /// # Errors
    /// `Conflict` if one of them is kept already, or there is no such attempt.
    async fn insert_unopened(&mut self, attempt: Attempt, sessions: &[UnopenedSession]) -> Result<()>;

    /// The sessions of an attempt that ended without a sum, by group; none for any other attempt.
    async fn unopened(&mut self, attempt: Attempt) -> Result<Vec<UnopenedSession>>;

    /// Keeps what a member said; the first statement stays. False if it had said so before.
    ///
    /// # Errors
    /// `Conflict` if it has no place in the attempt.
    async fn insert_abort_statement(&mut self, statement: &AbortStatement) -> Result<bool>;

    /// What the members of one group of an attempt said, in the order of their ids.
    async fn abort_statements(&mut self, attempt: Attempt, group: u32) -> Result<Vec<AbortStatement>>;

    /// How many participants have sent a masked input that starts from a version with this digest, in other rounds than this, of
    /// whatever task, but for sessions of which it is proven that they were never opened.
    async fn count_given(&mut self, base: Digest, but: RoundKey) -> Result<u32>;
}
