//! Check-ins: participants that are ready to work.

use async_trait::async_trait;
use bytes::Bytes;
use federation::cohort::{Candidate, CoarseLoss};
use federation::id::{Attempt, ParticipantId, TaskId};
use federation::time::Timestamp;
use federation::training::Claim;

use crate::error::Result;

/// A participant that is ready to work on a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckIn {
    pub participant: ParticipantId,
    pub task: TaskId,
    /// Reported number of training examples; at most `i64::MAX`.
    pub examples: u64,
    pub checked_in_at: Timestamp,
    /// When it stops counting as ready.
    pub expires_at: Timestamp,
    pub loss: Option<CoarseLoss>,
    /// Its keys for the next attempt. `None` keeps earlier ones.
    pub keys: Option<CheckInKeys>,
    /// Its report on the training it was given ahead of rounds.
    pub training: Option<Claim>,
}

/// A participant's keys for one attempt of a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckInKeys {
    /// The attempt, at a round of the check-in's task.
    pub attempt: Attempt,
    /// The public keys as the participant sent them; at most 4096 bytes.
    pub advertisement: Bytes,
}

/// Reads and changes check-ins.
#[async_trait]
pub trait CheckIns {
    /// Stores check-ins; a newer one of the same participant and task replaces the older, but keeps its keys if it has
    /// none itself.
    ///
    /// # Errors
    /// `Conflict` if a participant or task does not exist, or keys are too long.
    async fn upsert_check_ins(&mut self, check_ins: &[CheckIn]) -> Result<()>;

    /// Extends existing check-ins: those of the same participant and task get this time, and this expiry if it is
    /// later. Removed ones are not restored.
    ///
    /// # Errors
    /// The database's.
    async fn renew_check_ins(&mut self, check_ins: &[CheckIn]) -> Result<()>;

    /// Number of [`CheckIns::candidates`].
    async fn candidate_count(&mut self, task: TaskId, now: Timestamp) -> Result<u32>;

    /// How many [`CheckIns::keyed_candidates`] there are.
    async fn keyed_candidate_count(&mut self, attempt: Attempt, now: Timestamp) -> Result<u32>;

    /// The participants checked in for the task at `now`, with their history in it, ordered by name, without those that
    /// are revoked or that a round still waits for: see [`Assignments::pending_assignment`].
    ///
    /// [`Assignments::pending_assignment`]: super::assignment::Assignments::pending_assignment
    async fn candidates(&mut self, task: TaskId, now: Timestamp) -> Result<Vec<Candidate>>;

    /// Of the [`CheckIns::candidates`] those whose keys are for this attempt, with the keys' advertisements.
    async fn keyed_candidates(&mut self, attempt: Attempt, now: Timestamp) -> Result<Vec<(Candidate, Bytes)>>;

    /// How many are checked in for the task at `now`, as [`CheckIns::candidates`] has them; with `keys_for`, those
    /// whose keys are for that attempt.
    async fn count_checked_in(&mut self, task: TaskId, keys_for: Option<Attempt>, now: Timestamp) -> Result<u32>;

    /// The newest keys of a check-in that has not been removed.
    async fn check_in_keys(&mut self, task: TaskId, participant: ParticipantId) -> Result<Option<CheckInKeys>>;

    /// Removes every check-in of these participants.
    async fn remove_check_ins(&mut self, participants: &[ParticipantId]) -> Result<()>;

    /// Removes check-ins that have expired by `now`; returns their number.
    async fn expire_check_ins(&mut self, now: Timestamp) -> Result<u32>;
}
