//! Rounds in SQLite.

use async_trait::async_trait;
use federation::id::{Attempt, RoundKey, TaskId};
use federation::round::{Round, RoundState};
use federation::time::Timestamp;

use super::SqliteTransaction;
use super::row::{Bind as _, Columns as _, each, integer, json};
use super::statement::{SqliteRow, query};
use crate::entity::check_in::CheckIns as _;
use crate::entity::round::{RoundChange, RoundMetric, RoundRow, Rounds};
use crate::entity::session_message::MessageKind;
use crate::error::{Result, StoreError};

#[async_trait]
impl Rounds for SqliteTransaction {
    async fn insert_round(&mut self, round: &Round) -> Result<()> {
        self.insert(
            query(
                "INSERT INTO round (task, number, attempt, state, base_version, limits, cohort, state_since, opened_at,
                                    failure)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
            )
            .attempt(round.key)
            .bind(round.state.as_str())
            .bind(round.base_version)
            .bind(json(&round.limits)?)
            .bind(round.cohort)
            .time(round.state_since)
            .time(round.opened_at)
            .bind(round.failure.map(|reason| reason.as_str())),
        )
        .await?;
        self.add_round_change(round, 0).await
    }

    async fn round(&mut self, key: RoundKey) -> Result<Option<RoundRow>> {
        let row = self
            .find(
                query("SELECT * FROM round WHERE task = ?1 AND number = ?2 ORDER BY attempt DESC LIMIT 1")
                    .bind(key.task.0)
                    .bind(key.number),
            )
            .await?;
        row.as_ref().map(read).transpose()
    }

    async fn round_attempt(&mut self, attempt: Attempt) -> Result<Option<RoundRow>> {
        let row = self
            .find(query("SELECT * FROM round WHERE task = ?1 AND number = ?2 AND attempt = ?3").attempt(attempt))
            .await?;
        row.as_ref().map(read).transpose()
    }

    async fn rounds(&mut self, task: TaskId, before_number: Option<u32>, limit: u32) -> Result<Vec<RoundRow>> {
        let rows = self
            .list(
                query(
                    "SELECT * FROM round
                     WHERE task = ?1 AND number < coalesce(?2, 1 << 62)
                       AND attempt = (SELECT max(attempt) FROM round AS other
                                      WHERE other.task = round.task AND other.number = round.number)
                     ORDER BY number DESC LIMIT ?3",
                )
                .bind(task.0)
                .bind(before_number)
                .bind(limit),
            )
            .await?;
        each(&rows, read)
    }

    async fn open_rounds(&mut self) -> Result<Vec<RoundRow>> {
        let rows = self
            .list(query("SELECT * FROM round WHERE state NOT IN ('COMPLETED', 'FAILED', 'CANCELLED') ORDER BY task"))
            .await?;
        each(&rows, read)
    }

    async fn transition_round(&mut self, before: &Round, after: &Round) -> Result<bool> {
        if before.key != after.key {
            return Err(StoreError::fault("a transition from one round to another"));
        }
        let row = self
            .change_returning(
                query(
                    "UPDATE round SET state = ?6, state_since = ?7, limits = ?8, cohort = ?9, failure = ?10
                     WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND state = ?4 AND state_since = ?5
                     RETURNING reported",
                )
                .attempt(before.key)
                .bind(before.state.as_str())
                .time(before.state_since)
                .bind(after.state.as_str())
                .time(after.state_since)
                .bind(json(&after.limits)?)
                .bind(after.cohort)
                .bind(after.failure.map(|reason| reason.as_str())),
            )
            .await?;
        let Some(row) = row else { return Ok(false) };
        let attempt = after.key;
        let count = match (before.state, after.state) {
            (_, RoundState::Selecting) => 0,
            // Without a draw, the count is that of checked-in participants.
            (RoundState::Selecting, RoundState::Failed | RoundState::Cancelled) => {
                let keys_for = before.limits.secure.is_some().then_some(attempt);
                self.count_checked_in(attempt.task, keys_for, after.state_since).await?
            }
            (RoundState::Sharing, RoundState::Collecting) => self.count_messages(attempt, MessageKind::Shares).await?,
            (_, RoundState::Sharing | RoundState::Collecting) => after.cohort,
            (_, RoundState::Unmasking) => self.count_messages(attempt, MessageKind::Consistency).await?,
            (RoundState::Unmasking, RoundState::Aggregating) => {
                self.count_messages(attempt, MessageKind::Unmasking).await?
            }
            _ => row.small("reported")?,
        };
        self.add_round_change(after, count).await?;
        Ok(true)
    }

    async fn rebase_round(&mut self, attempt: Attempt, state: RoundState, state_since: Timestamp) -> Result<bool> {
        self.change_one(
            query(
                "UPDATE round SET state_since = ?5
                 WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND state = ?4",
            )
            .attempt(attempt)
            .bind(state.as_str())
            .time(state_since),
        )
        .await
    }

    async fn set_round_result(
        &mut self,
        attempt: Attempt,
        metrics: &[RoundMetric],
        model_version: Option<u32>,
    ) -> Result<bool> {
        if let Some(metric) = metrics.iter().find(|metric| !metric.value.is_finite()) {
            return Err(StoreError::fault(format!("metric {:?} is {}, not finite", metric.name, metric.value)));
        }
        self.change_one(
            query(
                "UPDATE round SET metrics = ?4, model_version = ?5
                 WHERE task = ?1 AND number = ?2 AND attempt = ?3",
            )
            .attempt(attempt)
            .bind(json(metrics)?)
            .bind(model_version),
        )
        .await
    }

    async fn add_bytes_down(&mut self, attempt: Attempt, state: RoundState, bytes: u64) -> Result<bool> {
        let bytes = integer(bytes)?;
        let counted = self
            .change_one(
                query(
                    "UPDATE round SET bytes_down = bytes_down + ?4
                     WHERE task = ?1 AND number = ?2 AND attempt = ?3",
                )
                .attempt(attempt)
                .bind(bytes),
            )
            .await?;
        if counted {
            self.insert(
                query(
                    "INSERT INTO round_traffic (task, number, attempt, state, bytes_down) VALUES (?1, ?2, ?3, ?4, ?5)
                     ON CONFLICT (task, number, attempt, state) DO UPDATE SET bytes_down = bytes_down + ?5",
                )
                .attempt(attempt)
                .bind(state.as_str())
                .bind(bytes),
            )
            .await?;
        }
        Ok(counted)
    }
}

impl SqliteTransaction {
    async fn add_round_change(&mut self, round: &Round, count: u32) -> Result<()> {
        self.insert(
            query("INSERT INTO round_change (task, number, attempt, state, at, count) VALUES (?1, ?2, ?3, ?4, ?5, ?6)")
                .attempt(round.key)
                .bind(round.state.as_str())
                .time(round.state_since)
                .bind(count),
        )
        .await
    }
}

pub(super) fn read_change(row: &SqliteRow) -> Result<RoundChange> {
    Ok(RoundChange { state: row.named("state")?, at: row.time("at")?, count: row.small("count")? })
}

fn read(row: &SqliteRow) -> Result<RoundRow> {
    let round = Round {
        key: row.attempt()?,
        state: row.named("state")?,
        base_version: row.small("base_version")?,
        limits: row.json("limits")?,
        cohort: row.small("cohort")?,
        state_since: row.time("state_since")?,
        opened_at: row.time("opened_at")?,
        failure: row.optional_named("failure")?,
    };
    Ok(RoundRow {
        reported: row.small("reported")?,
        bytes_up: row.large("bytes_up")?,
        bytes_down: row.large("bytes_down")?,
        metrics: row.json("metrics")?,
        model_version: row.optional_small("model_version")?,
        ended_at: round.state.is_terminal().then_some(round.state_since),
        round,
    })
}
