//! Training ahead of rounds: the trainings given to participants, and the updates that a round aggregates.

use federation::id::{Attempt, ParticipantId, TaskId};
use federation::time::Timestamp;
use federation::training::{Claim, Training};

use crate::driver::{FromRow, Row};
use crate::error::Result;
use crate::transaction::Transaction;

/// An update that was trained ahead of its round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffered {
    pub participant: ParticipantId,
    /// Serial number of its training.
    pub serial: u32,
    /// The version it started from.
    pub base_version: u32,
}

columns!(Training { participant, serial, base_version, granted_at, expires_at, is_over });
columns!(Buffered { participant, serial, base_version });

impl Transaction<'_> {
    /// Gives each of these participants a training, replacing the current one, with the next serial number.
    ///
    /// # Errors
    /// `Conflict` if the task or a participant does not exist.
    pub async fn grant_trainings(
        &mut self,
        task: TaskId,
        participants: &[ParticipantId],
        base_version: u32,
        granted_at: Timestamp,
        expires_at: Timestamp,
    ) -> Result<()> {
        self.change_all(
            "INSERT INTO training (task, participant, serial, base_version, granted_at, expires_at)
             SELECT ?1, participant, 1, ?2, ?3, ?4 FROM {?5 participant:bytes} AS given WHERE true
             ON CONFLICT (task, participant) DO UPDATE
             SET serial = training.serial + 1, base_version = excluded.base_version, granted_at = excluded.granted_at,
                 expires_at = excluded.expires_at, is_over = 0",
            (task, base_version, granted_at, expires_at, participants),
        )
        .await
    }

    /// The last training given to a participant.
    pub async fn training(&mut self, task: TaskId, participant: ParticipantId) -> Result<Option<Training>> {
        self.find("SELECT * FROM training WHERE task = ?1 AND participant = ?2", (task, participant)).await
    }

    /// The trainings of a task that are not over and whose participants are not revoked, ordered by participants'
    /// names, each with the participant's report in a check-in that is valid at `now`.
    pub async fn open_trainings(&mut self, task: TaskId, now: Timestamp) -> Result<Vec<(Training, Option<Claim>)>> {
        self.list(
            "SELECT training.participant, serial, base_version, granted_at, training.expires_at, is_over,
                    check_in.training AS claimed, is_ready
             FROM training
             JOIN participant ON participant.id = training.participant
             LEFT JOIN check_in ON check_in.task = training.task
                               AND check_in.participant = training.participant AND check_in.expires_at > ?2
             WHERE training.task = ?1 AND is_over = 0 AND participant.revoked_at IS NULL
             ORDER BY participant.name",
            (task, now),
        )
        .await
    }

    /// How many of [`Transaction::open_trainings`] started from the version `oldest` or a newer one and are finished, as their participants
    /// report.
    pub async fn count_ready_trainings(&mut self, task: TaskId, oldest: u32, now: Timestamp) -> Result<u32> {
        self.get(
            "SELECT count(*)
             FROM training
             JOIN participant ON participant.id = training.participant
             JOIN check_in ON check_in.task = training.task
                          AND check_in.participant = training.participant AND check_in.expires_at > ?3
             WHERE training.task = ?1 AND training.is_over = 0 AND participant.revoked_at IS NULL
               AND training.base_version >= ?2 AND check_in.training = training.serial AND check_in.is_ready = 1",
            (task, oldest, now),
        )
        .await
    }

    /// Lets the trainings of these participants expire at `at`.
    pub async fn lapse_trainings(&mut self, task: TaskId, participants: &[ParticipantId], at: Timestamp) -> Result<()> {
        self.change_all(
            "UPDATE training SET expires_at = ?2
             WHERE task = ?1 AND participant IN {?3 participant:bytes}",
            (task, at, participants),
        )
        .await
    }

    /// Ends the trainings whose updates were accepted in this attempt, whether it succeeded or failed, and returns their number.
    /// Trainings assigned since then stay.
    pub async fn end_reported_trainings(&mut self, attempt: Attempt) -> Result<u32> {
        self.change(
            "UPDATE training SET is_over = 1
             WHERE task = ?1 AND is_over = 0 AND (participant, serial) IN (
                 SELECT buffered.participant, buffered.serial
                 FROM buffered JOIN assignment USING (task, number, attempt, participant)
                 WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND assignment.state = 'REPORTED')",
            attempt,
        )
        .await
    }

    /// Records the updates that an attempt aggregates.
    ///
    /// # Errors
    /// `Conflict` if one of the participants is not assigned to it, or was recorded before.
    pub async fn insert_buffered(&mut self, attempt: Attempt, updates: &[Buffered]) -> Result<()> {
        let row = |update: &Buffered| (update.participant, update.serial, update.base_version);
        self.change_all(
            "INSERT INTO buffered (task, number, attempt, participant, serial, base_version)
             SELECT ?1, ?2, ?3, new.participant, new.serial, new.base_version
             FROM {?4 participant:bytes serial:integer base_version:integer} AS new",
            (attempt, updates.iter().map(row).collect::<Vec<_>>()),
        )
        .await
    }

    /// The update that an attempt wants of a participant.
    pub async fn buffered(&mut self, attempt: Attempt, participant: ParticipantId) -> Result<Option<Buffered>> {
        self.find(
            "SELECT * FROM buffered WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND participant = ?4",
            (attempt, participant),
        )
        .await
    }

    /// Every update that an attempt aggregates, in the order of participants' ids.
    pub async fn all_buffered(&mut self, attempt: Attempt) -> Result<Vec<Buffered>> {
        self.list(
            "SELECT * FROM buffered WHERE task = ?1 AND number = ?2 AND attempt = ?3 ORDER BY participant",
            attempt,
        )
        .await
    }
}

impl FromRow for (Training, Option<Claim>) {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        let claim = row.get::<Option<_>>("claimed")?.zip(row.get::<Option<_>>("is_ready")?);
        Ok((Training::from_row(row)?, claim.map(|(serial, is_ready)| Claim { serial, is_ready })))
    }
}
