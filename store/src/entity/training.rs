//! Training ahead of rounds: who was told to train from which version, and whose updates a round aggregates.

use async_trait::async_trait;
use federation::id::{Attempt, ParticipantId, TaskId};
use federation::time::Timestamp;
use federation::training::{Claim, Training};

use crate::error::Result;

/// An update of a round that was trained ahead of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffered {
    /// Whose.
    pub participant: ParticipantId,
    /// Which of its trainings.
    pub serial: u32,
    /// The version it started from.
    pub base_version: u32,
}

/// Reads and changes trainings.
#[async_trait]
pub trait Trainings {
    /// Gives each of these participants a training, in place of the one it had: its serial is one more.
    ///
    /// # Errors
    /// `Conflict` if the task or a participant does not exist.
    async fn grant_trainings(
        &mut self,
        task: TaskId,
        participants: &[ParticipantId],
        base_version: u32,
        granted_at: Timestamp,
        expires_at: Timestamp,
    ) -> Result<()>;

    /// The training a participant was given last.
    async fn training(&mut self, task: TaskId, participant: ParticipantId) -> Result<Option<Training>>;

    /// Every training of a task that is not over and of nobody revoked, in the order of participants' names, with what its
    /// participant says of it by a check-in that holds at `now`.
    async fn open_trainings(&mut self, task: TaskId, now: Timestamp) -> Result<Vec<(Training, Option<Claim>)>>;

    /// Nobody counts any more, from `at` on, on what these participants were told to train.
    async fn lapse_trainings(&mut self, task: TaskId, participants: &[ParticipantId], at: Timestamp) -> Result<()>;

    /// The trainings whose updates were accepted in this attempt are over; says how many. A training that was given since
    /// stays.
    async fn end_reported_trainings(&mut self, attempt: Attempt) -> Result<u32>;

    /// Records which updates an attempt aggregates.
    ///
    /// # Errors
    /// `Conflict` if one of the participants is not assigned to it, or was recorded before.
    async fn insert_buffered(&mut self, attempt: Attempt, updates: &[Buffered]) -> Result<()>;

    /// The update that an attempt wants of a participant.
    async fn buffered(&mut self, attempt: Attempt, participant: ParticipantId) -> Result<Option<Buffered>>;

    /// Every update that an attempt aggregates, in the order of participants' ids.
    async fn all_buffered(&mut self, attempt: Attempt) -> Result<Vec<Buffered>>;
}
