//! Check-ins: who is ready to work now.

use async_trait::async_trait;
use federation::cohort::Candidate;
use federation::id::{ParticipantId, TaskId};
use federation::time::Timestamp;

use crate::error::Result;

/// A participant that is ready to work on a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckIn {
    /// Who.
    pub participant: ParticipantId,
    /// For which task.
    pub task: TaskId,
    /// Training examples it says it has; more than `i64::MAX` counts as `i64::MAX`.
    pub examples: u64,
    /// When it said so.
    pub checked_in_at: Timestamp,
    /// From then on it no longer counts as ready.
    pub expires_at: Timestamp,
}

/// Reads and changes check-ins.
#[async_trait]
pub trait CheckIns {
    /// Stores check-ins; a newer one of the same participant and task replaces the older.
    ///
    /// # Errors
    /// `Conflict` if a participant or task does not exist.
    async fn upsert_check_ins(&mut self, check_ins: &[CheckIn]) -> Result<()>;

    /// Everybody checked in for the task at `now`, with its history in it, in the order of names. Left out are those
    /// revoked, and those a round that is collecting still waits for.
    async fn candidates(&mut self, task: TaskId, now: Timestamp) -> Result<Vec<Candidate>>;

    /// Removes every check-in of these participants.
    async fn remove_check_ins(&mut self, participants: &[ParticipantId]) -> Result<()>;

    /// Removes those that expired by `now`; says how many.
    async fn expire_check_ins(&mut self, now: Timestamp) -> Result<u32>;
}
