//! Training ahead of rounds: the trainings given to participants, and the updates that a round aggregates.

use async_trait::async_trait;
use federation::id::{Attempt, ParticipantId, TaskId};
use federation::time::Timestamp;
use federation::training::{Claim, Training};

use crate::error::Result;

/// An update that was trained ahead of its round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffered {
    pub participant: ParticipantId,
    /// Serial number of its training.
    pub serial: u32,
    /// The version it started from.
    pub base_version: u32,
}

/// Reads and changes trainings.
#[async_trait]
pub trait Trainings {
    /// Gives each of these participants a training, replacing the current one, with the next serial number.
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

    /// The last training given to a participant.
    async fn training(&mut self, task: TaskId, participant: ParticipantId) -> Result<Option<Training>>;

    /// The trainings of a task that are not over and whose participants are not revoked, ordered by participants'
    /// names, each with the participant's report in a check-in that is valid at `now`.
    async fn open_trainings(&mut self, task: TaskId, now: Timestamp) -> Result<Vec<(Training, Option<Claim>)>>;

    /// Lets the trainings of these participants expire at `at`.
    async fn lapse_trainings(&mut self, task: TaskId, participants: &[ParticipantId], at: Timestamp) -> Result<()>;

    /// The trainings whose updates were accepted in this attempt are over; says how many. A training that was given since
    /// stays.
    async fn end_reported_trainings(&mut self, attempt: Attempt) -> Result<u32>;

    /// Records the updates that an attempt aggregates.
    ///
    /// # Errors
    /// `Conflict` if one of the participants is not assigned to it, or was recorded before.
    async fn insert_buffered(&mut self, attempt: Attempt, updates: &[Buffered]) -> Result<()>;

    /// The update that an attempt wants of a participant.
    async fn buffered(&mut self, attempt: Attempt, participant: ParticipantId) -> Result<Option<Buffered>>;

    /// Every update that an attempt aggregates, in the order of participants' ids.
    async fn all_buffered(&mut self, attempt: Attempt) -> Result<Vec<Buffered>>;
}
