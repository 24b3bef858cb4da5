//! Check-ins in SQLite.

use async_trait::async_trait;
use bytes::Bytes;
use federation::cohort::{Candidate, CoarseLoss};
use federation::id::{Attempt, ParticipantId, TaskId};
use federation::time::Timestamp;

use super::SqliteTransaction;
use super::row::{Bind as _, Columns as _, each, json, json_ids};
use super::statement::{SqliteRow, query};
use crate::entity::check_in::{CheckIn, CheckInKeys, CheckIns};
use crate::error::{Result, StoreError};

/// Participants ready for task `?1` at `?2`, for lists and counts.
macro_rules! ready {
    () => {
        " WHERE check_in.task = ?1 AND check_in.expires_at > ?2 AND participant.revoked_at IS NULL
            AND NOT EXISTS (SELECT 1 FROM pending_place WHERE pending_place.participant = check_in.participant)"
    };
}

/// With keys for attempt `?4` of round `?3`.
macro_rules! keyed {
    () => {
        " AND check_in.keys_round = ?3 AND check_in.keys_attempt = ?4"
    };
}

/// Number of candidates for task `?1` at `?2`, with additional conditions.
macro_rules! candidate_count {
    ($conditions:expr) => {
        concat!(
            "SELECT count(*) AS candidates FROM check_in JOIN participant ON participant.id = check_in.participant",
            ready!(),
            $conditions
        )
    };
}

/// Candidates for task `?1` at `?2`, with additional columns and conditions.
macro_rules! candidates {
    ($columns:literal, $conditions:expr) => {
        concat!(
            "SELECT check_in.participant, participant.labels, check_in.examples,
                    coalesce(participation.count, 0) AS participations, last_number, last_at,
                    check_in.loss, last_duration_ms",
            $columns,
            " FROM check_in
             JOIN participant ON participant.id = check_in.participant
             LEFT JOIN participation ON participation.task = check_in.task
                                    AND participation.participant = check_in.participant",
            ready!(),
            $conditions,
            " ORDER BY participant.name"
        )
    };
}

#[async_trait]
impl CheckIns for SqliteTransaction {
    async fn upsert_check_ins(&mut self, check_ins: &[CheckIn]) -> Result<()> {
        let rows: Vec<_> = check_ins
            .iter()
            .map(|check_in| {
                let keys = check_in.keys.as_ref();
                (
                    check_in.task.0.simple().to_string(),
                    check_in.participant.0.simple().to_string(),
                    i64::try_from(check_in.examples).unwrap_or(i64::MAX),
                    check_in.checked_in_at,
                    check_in.expires_at,
                    keys.map(|keys| keys.attempt.round),
                    keys.map(|keys| keys.attempt.attempt),
                    keys.map(|keys| hex::encode(&keys.advertisement)),
                    check_in.loss,
                    check_in.training.map(|claim| claim.serial),
                    check_in.training.map(|claim| u8::from(claim.is_ready)),
                )
            })
            .collect();
        self.change(
            query(
                "INSERT INTO check_in (task, participant, examples, checked_in_at, expires_at,
                                       keys_round, keys_attempt, keys, loss, training, is_ready)
                 SELECT unhex(value ->> 0), unhex(value ->> 1), value ->> 2, value ->> 3, value ->> 4,
                        value ->> 5, value ->> 6, unhex(value ->> 7), value ->> 8, value ->> 9, value ->> 10
                 FROM json_each(?1) WHERE true
                 ON CONFLICT (task, participant) DO UPDATE
                 SET examples = excluded.examples, checked_in_at = excluded.checked_in_at,
                     expires_at = excluded.expires_at, loss = excluded.loss, training = excluded.training,
                     is_ready = excluded.is_ready, keys_round = coalesce(excluded.keys_round, keys_round),
                     keys_attempt = coalesce(excluded.keys_attempt, keys_attempt),
                     keys = coalesce(excluded.keys, keys)",
            )
            .bind(json(&rows)?),
        )
        .await?;
        Ok(())
    }

    async fn renew_check_ins(&mut self, check_ins: &[CheckIn]) -> Result<()> {
        let rows: Vec<_> = check_ins
            .iter()
            .map(|check_in| {
                let (task, participant) = (check_in.task.0.simple(), check_in.participant.0.simple());
                (task.to_string(), participant.to_string(), check_in.checked_in_at, check_in.expires_at)
            })
            .collect();
        self.change(
            query(
                "UPDATE check_in SET checked_in_at = renewed.checked_in_at, expires_at = renewed.expires_at
                 FROM (SELECT unhex(value ->> 0) AS task, unhex(value ->> 1) AS participant,
                              value ->> 2 AS checked_in_at, value ->> 3 AS expires_at FROM json_each(?1)) AS renewed
                 WHERE check_in.task = renewed.task AND check_in.participant = renewed.participant
                   AND check_in.expires_at < renewed.expires_at",
            )
            .bind(json(&rows)?),
        )
        .await?;
        Ok(())
    }

    async fn candidate_count(&mut self, task: TaskId, now: Timestamp) -> Result<u32> {
        let row = self.find(query(candidate_count!("")).bind(task.0).time(now)).await?;
        row.map_or(Ok(0), |row| row.small("candidates"))
    }

    async fn keyed_candidate_count(&mut self, attempt: Attempt, now: Timestamp) -> Result<u32> {
        let count =
            query(candidate_count!(keyed!())).bind(attempt.task.0).time(now).bind(attempt.round).bind(attempt.attempt);
        let row = self.find(count).await?;
        row.map_or(Ok(0), |row| row.small("candidates"))
    }

    async fn candidates(&mut self, task: TaskId, now: Timestamp) -> Result<Vec<Candidate>> {
        let rows = self.list(query(candidates!("", "")).bind(task.0).time(now)).await?;
        each(&rows, candidate)
    }

    async fn keyed_candidates(&mut self, attempt: Attempt, now: Timestamp) -> Result<Vec<(Candidate, Bytes)>> {
        let rows = self
            .list(
                query(candidates!(", check_in.keys", keyed!()))
                    .bind(attempt.task.0)
                    .time(now)
                    .bind(attempt.round)
                    .bind(attempt.attempt),
            )
            .await?;
        each(&rows, |row| Ok((candidate(row)?, row.bytes("keys")?.into())))
    }

    async fn count_checked_in(&mut self, task: TaskId, keys_for: Option<Attempt>, now: Timestamp) -> Result<u32> {
        let (round, attempt) = keys_for.map(|attempt| (attempt.round, attempt.attempt)).unzip();
        let counted = self
            .find(
                query(concat!(
                    "SELECT count(*) AS count FROM (",
                    candidates!("", " AND (?3 IS NULL OR (check_in.keys_round = ?3 AND check_in.keys_attempt = ?4))"),
                    ")"
                ))
                .bind(task.0)
                .time(now)
                .bind(round)
                .bind(attempt),
            )
            .await?;
        counted.map_or(Ok(0), |row| row.small("count"))
    }

    async fn check_in_keys(&mut self, task: TaskId, participant: ParticipantId) -> Result<Option<CheckInKeys>> {
        let row = self
            .find(
                query(
                    "SELECT keys_round, keys_attempt, keys FROM check_in
                     WHERE task = ?1 AND participant = ?2 AND keys IS NOT NULL",
                )
                .bind(task.0)
                .bind(participant.0),
            )
            .await?;
        row.map(|row| {
            Ok(CheckInKeys {
                attempt: Attempt { task, round: row.small("keys_round")?, attempt: row.small("keys_attempt")? },
                advertisement: row.bytes("keys")?.into(),
            })
        })
        .transpose()
    }

    async fn remove_check_ins(&mut self, participants: &[ParticipantId]) -> Result<()> {
        self.change(
            query("DELETE FROM check_in WHERE participant IN (SELECT unhex(value) FROM json_each(?1))")
                .bind(json_ids(participants)?),
        )
        .await?;
        Ok(())
    }

    async fn expire_check_ins(&mut self, now: Timestamp) -> Result<u32> {
        self.count_changes(query("DELETE FROM check_in WHERE expires_at <= ?1").time(now)).await
    }
}

fn candidate(row: &SqliteRow) -> Result<Candidate> {
    Ok(Candidate {
        participant: ParticipantId(row.uuid("participant")?),
        labels: row.json("labels")?,
        examples: row.large("examples")?,
        participations: row.small("participations")?,
        last: row.optional_small("last_number")?.zip(row.optional_time("last_at")?),
        loss: row.optional_small("loss")?.map(coarse_loss).transpose()?,
        duration_ms: row.optional_integer("last_duration_ms")?.map(i64::unsigned_abs),
    })
}

fn coarse_loss(level: u32) -> Result<CoarseLoss> {
    let level = u8::try_from(level).map_err(|_| StoreError::corrupt(format!("{level} is no level of a loss")))?;
    CoarseLoss::try_from(level).map_err(StoreError::corrupt)
}
