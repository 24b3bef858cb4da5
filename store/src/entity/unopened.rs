//! Sessions that ended without a sum after inputs had been sent, and their members' abort statements.

use async_trait::async_trait;
use bytes::Bytes;
use federation::id::{Attempt, Digest, ParticipantId, RoundKey};
use federation::time::Timestamp;

use crate::error::Result;

/// The data of such a session that members need for a proof.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnopenedSession {
    /// Number of the cohort's group; 0 if undivided.
    pub group: u32,
    /// Number of statements that prove that it was never opened.
    pub needed: u16,
    /// The roster as announced.
    pub roster: Bytes,
}

/// A member's statement that it left a session for good without answering.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AbortStatement {
    pub attempt: Attempt,
    pub participant: ParticipantId,
    /// Number of the cohort's group; 0 if undivided.
    pub group: u32,
    pub statement: Bytes,
    pub received_at: Timestamp,
}

/// Reads and adds sessions and statements, which are never removed.
#[async_trait]
pub trait Unopened {
    /// Stores the sessions of an attempt that ends without a sum.
    ///
    /// # Errors
    /// `Conflict` if one of them is kept already, or there is no such attempt.
    async fn insert_unopened(&mut self, attempt: Attempt, sessions: &[UnopenedSession]) -> Result<()>;

    /// The sessions of an attempt that ended without a sum, by group; none for any other attempt.
    async fn unopened(&mut self, attempt: Attempt) -> Result<Vec<UnopenedSession>>;

    /// Stores a member's statement; the first one stays. False if there was one.
    ///
    /// # Errors
    /// `Conflict` if the participant has no assignment in the attempt.
    async fn insert_abort_statement(&mut self, statement: &AbortStatement) -> Result<bool>;

    /// What the members of one group of an attempt said, in the order of their ids.
    async fn abort_statements(&mut self, attempt: Attempt, group: u32) -> Result<Vec<AbortStatement>>;

    /// Number of participants that have sent a masked input trained from a version with this digest, in any round of
    /// any task except `but`, without those in sessions that are proven unopened.
    async fn count_given(&mut self, base: Digest, but: RoundKey) -> Result<u32>;
}
