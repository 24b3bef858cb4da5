//! Check-ins: who is ready to work now.

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
    /// The training loss that it volunteers.
    pub loss: Option<CoarseLoss>,
    /// Its keys for the next attempt. None: those it gave before stay.
    pub keys: Option<CheckInKeys>,
    /// What it says of the training it was given ahead of rounds.
    pub training: Option<Claim>,
}

/// Keys that a participant made for one attempt of a round.
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
    /// Stores check-ins; a newer one of the same participant and task replaces the older, except that one without keys
    /// keeps the keys that are there.
    ///
    /// # Errors
    /// `Conflict` if a participant or task does not exist, or keys are too long.
    async fn upsert_check_ins(&mut self, check_ins: &[CheckIn]) -> Result<()>;

    /// Lets check-ins that are there last longer: those of the same participant and task get this time and end if the end is
    /// later, and nothing else. One that was removed stays so.
    ///
    /// # Errors
    /// The database's.
    async fn renew_check_ins(&mut self, check_ins: &[CheckIn]) -> Result<()>;

    /// How many [`CheckIns::candidates`] there are.
    async fn candidate_count(&mut self, task: TaskId, now: Timestamp) -> Result<u32>;

    /// How many [`CheckIns::keyed_candidates`] there are.
    async fn keyed_candidate_count(&mut self, attempt: Attempt, now: Timestamp) -> Result<u32>;

    /// Everybody checked in for the task at `now`, with its history in it, in the order of names. Left out are those
    /// revoked, and those a round still waits for: see [`Assignments::pending_assignment`].
    ///
    /// [`Assignments::pending_assignment`]: super::assignment::Assignments::pending_assignment
    async fn candidates(&mut self, task: TaskId, now: Timestamp) -> Result<Vec<Candidate>>;

    /// Of the [`CheckIns::candidates`] those whose keys are for this attempt, with the keys' advertisements.
    async fn keyed_candidates(&mut self, attempt: Attempt, now: Timestamp) -> Result<Vec<(Candidate, Bytes)>>;

    /// How many are checked in for the task at `now`, as [`CheckIns::candidates`] has them; with `keys_for`, those
    /// whose keys are for that attempt.
    async fn count_checked_in(&mut self, task: TaskId, keys_for: Option<Attempt>, now: Timestamp) -> Result<u32>;

    /// The newest keys that came with a check-in which has not been removed.
    async fn check_in_keys(&mut self, task: TaskId, participant: ParticipantId) -> Result<Option<CheckInKeys>>;

    /// Removes every check-in of these participants.
    async fn remove_check_ins(&mut self, participants: &[ParticipantId]) -> Result<()>;

    /// Removes those that expired by `now`; says how many.
    async fn expire_check_ins(&mut self, now: Timestamp) -> Result<u32>;
}
