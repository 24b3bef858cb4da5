//! Trainings ahead of rounds in SQLite.

use async_trait::async_trait;
use federation::id::{Attempt, ParticipantId, TaskId};
use federation::time::Timestamp;
use federation::training::{Claim, Training};

use super::SqliteTransaction;
use super::row::{Bind as _, Columns as _, each, json, json_ids};
use super::statement::{SqliteRow, query};
use crate::entity::training::{Buffered, Trainings};
use crate::error::Result;

#[async_trait]
impl Trainings for SqliteTransaction {
    async fn grant_trainings(
        &mut self,
        task: TaskId,
        participants: &[ParticipantId],
        base_version: u32,
        granted_at: Timestamp,
        expires_at: Timestamp,
    ) -> Result<()> {
        self.change(
            query(
                "INSERT INTO training (task, participant, serial, base_version, granted_at, expires_at)
                 SELECT ?1, unhex(value), 1, ?2, ?3, ?4 FROM json_each(?5) WHERE true
                 ON CONFLICT (task, participant) DO UPDATE
                 SET serial = serial + 1, base_version = excluded.base_version, granted_at = excluded.granted_at,
                     expires_at = excluded.expires_at, is_over = 0",
            )
            .bind(task.0)
            .bind(base_version)
            .time(granted_at)
            .time(expires_at)
            .bind(json_ids(participants)?),
        )
        .await?;
        Ok(())
    }

    async fn training(&mut self, task: TaskId, participant: ParticipantId) -> Result<Option<Training>> {
        let row = self
            .find(
                query(
                    "SELECT participant, serial, base_version, granted_at, expires_at, is_over FROM training
                     WHERE task = ?1 AND participant = ?2",
                )
                .bind(task.0)
                .bind(participant.0),
            )
            .await?;
        row.as_ref().map(training).transpose()
    }

    async fn open_trainings(&mut self, task: TaskId, now: Timestamp) -> Result<Vec<(Training, Option<Claim>)>> {
        let rows = self
            .list(
                query(
                    "SELECT training.participant, serial, base_version, granted_at, training.expires_at, is_over,
                            check_in.training AS claimed, is_ready
                     FROM training
                     JOIN participant ON participant.id = training.participant
                     LEFT JOIN check_in ON check_in.task = training.task
                                       AND check_in.participant = training.participant AND check_in.expires_at > ?2
                     WHERE training.task = ?1 AND is_over = 0 AND participant.revoked_at IS NULL
                     ORDER BY participant.name",
                )
                .bind(task.0)
                .time(now),
            )
            .await?;
        each(&rows, |row| {
            let claim = row.optional_small("claimed")?.zip(row.optional_small("is_ready")?);
            Ok((training(row)?, claim.map(|(serial, is_ready)| Claim { serial, is_ready: is_ready != 0 })))
        })
    }

    async fn lapse_trainings(&mut self, task: TaskId, participants: &[ParticipantId], at: Timestamp) -> Result<()> {
        self.change(
            query(
                "UPDATE training SET expires_at = ?2
                 WHERE task = ?1 AND participant IN (SELECT unhex(value) FROM json_each(?3))",
            )
            .bind(task.0)
            .time(at)
            .bind(json_ids(participants)?),
        )
        .await?;
        Ok(())
    }

    async fn end_reported_trainings(&mut self, attempt: Attempt) -> Result<u32> {
        self.count_changes(
            query(
                "UPDATE training SET is_over = 1
                 WHERE task = ?1 AND is_over = 0 AND (participant, serial) IN (
                     SELECT buffered.participant, buffered.serial
                     FROM buffered JOIN assignment USING (task, number, attempt, participant)
                     WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND assignment.state = 'REPORTED')",
            )
            .attempt(attempt),
        )
        .await
    }

    async fn insert_buffered(&mut self, attempt: Attempt, updates: &[Buffered]) -> Result<()> {
        let rows: Vec<_> = updates
            .iter()
            .map(|update| (update.participant.0.simple().to_string(), update.serial, update.base_version))
            .collect();
        self.change(
            query(
                "INSERT INTO buffered (task, number, attempt, participant, serial, base_version)
                 SELECT ?1, ?2, ?3, unhex(value ->> 0), value ->> 1, value ->> 2 FROM json_each(?4)",
            )
            .attempt(attempt)
            .bind(json(&rows)?),
        )
        .await?;
        Ok(())
    }

    async fn buffered(&mut self, attempt: Attempt, participant: ParticipantId) -> Result<Option<Buffered>> {
        let row = self
            .find(
                query(
                    "SELECT participant, serial, base_version FROM buffered
                     WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND participant = ?4",
                )
                .attempt(attempt)
                .bind(participant.0),
            )
            .await?;
        row.as_ref().map(buffered).transpose()
    }

    async fn all_buffered(&mut self, attempt: Attempt) -> Result<Vec<Buffered>> {
        let rows = self
            .list(
                query(
                    "SELECT participant, serial, base_version FROM buffered
                     WHERE task = ?1 AND number = ?2 AND attempt = ?3 ORDER BY participant",
                )
                .attempt(attempt),
            )
            .await?;
        each(&rows, buffered)
    }
}

fn training(row: &SqliteRow) -> Result<Training> {
    Ok(Training {
        participant: ParticipantId(row.uuid("participant")?),
        serial: row.small("serial")?,
        base_version: row.small("base_version")?,
        granted_at: row.time("granted_at")?,
        expires_at: row.time("expires_at")?,
        is_over: row.flag("is_over")?,
    })
}

fn buffered(row: &SqliteRow) -> Result<Buffered> {
    Ok(Buffered {
        participant: ParticipantId(row.uuid("participant")?),
        serial: row.small("serial")?,
        base_version: row.small("base_version")?,
    })
}
