//! Rounds: each attempt is a row, each state it entered a history entry.

use federation::event::{EventKind, Fact, Subject};
use federation::id::{Attempt, RoundKey, TaskId};
use federation::round::{FailureReason, Round, RoundState};
use federation::time::Timestamp;
use serde::{Deserialize, Serialize};

use super::session_message::MessageKind;
use crate::driver::{Before, Column, FromRow, Json, Read, Row, Value, document};
use crate::error::{Result, StoreError};
use crate::transaction::Transaction;

/// One attempt at a round, with its results so far.
#[derive(Clone, Debug, PartialEq)]
pub struct RoundRow {
    /// The input of the rules of rounds.
    pub round: Round,
    /// Number of admitted inputs.
    pub reported: u32,
    /// Size of the admitted inputs, in bytes.
    pub bytes_up: u64,
    /// Bytes sent to the cohort, as reported to [`Transaction::add_traffic`].
    pub bytes_down: u64,
    /// The cohort's weighted means, once known.
    pub metrics: Vec<RoundMetric>,
    pub model_version: Option<u32>,
    pub ended_at: Option<Timestamp>,
}

/// Which rounds to list, by their latest attempts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoundFilter {
    /// Only those in one of these states; empty: in any.
    pub states: Vec<RoundState>,
    /// Only those that were opened then or later.
    pub since: Option<Timestamp>,
    /// Only those whose sum a device of this name added or unmasked.
    pub device: Option<String>,
}

impl RoundFilter {
    fn states(&self) -> &[RoundState] {
        if self.states.is_empty() { &RoundState::ALL } else { &self.states }
    }
}

/// A weighted mean over the cohort.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoundMetric {
    /// One of the task's metrics.
    pub name: String,
    pub value: f64,
    /// The weight behind it, in examples.
    pub count: u64,
}

/// A state that a round entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundChange {
    pub state: RoundState,
    pub at: Timestamp,
    /// Number of participants that brought the attempt here: 0 for SELECTING; the cohort for the next state; after
    /// SHARING, CONFIRMING and UNMASKING, those that answered that phase; after COLLECTING, and at the end, admitted
    /// inputs.
    pub count: u32,
}

/// Attempts with counts derived from child rows, which avoids contention on a counter.
macro_rules! rounds {
    ($($condition:literal),+) => {
        concat!(
            "SELECT round.*,
                    (SELECT count(*) FROM admitted
                     WHERE admitted.task = round.task AND admitted.number = round.number
                       AND admitted.attempt = round.attempt) AS reported,
                    (SELECT CAST(coalesce(sum(bytes), 0) AS BIGINT) FROM admitted
                     WHERE admitted.task = round.task AND admitted.number = round.number
                       AND admitted.attempt = round.attempt) AS bytes_up,
                    (SELECT CAST(coalesce(sum(bytes_down), 0) AS BIGINT) FROM round_traffic AS traffic
                     WHERE traffic.task = round.task AND traffic.number = round.number
                       AND traffic.attempt = round.attempt) AS bytes_down
             FROM round ",
            $($condition),+
        )
    };
}

/// Rounds by their latest attempts, newest first.
macro_rules! latest_rounds {
    ($condition:literal) => {
        rounds!(
            "WHERE task = ?1 AND number < ?2
               AND attempt = (SELECT max(attempt) FROM round AS other
                              WHERE other.task = round.task AND other.number = round.number)
               AND opened_at >= ?4 AND state IN {?5 state:text} ",
            $condition,
            "ORDER BY number DESC LIMIT ?3"
        )
    };
}

/// Bytes sent to a cohort are counted in so many rows, which take turns by time: two writers seldom meet in one.
const TRAFFIC_ROWS: i64 = 16;

record!("round", Round { key: attempt, state, base_version, limits, cohort, state_since, opened_at, failure });
columns!(RoundChange { state, at, count });

impl Column for Vec<RoundMetric> {
    fn from_value(column: &Value<'_>) -> Read<Self> {
        document(column)
    }
}

impl Transaction<'_> {
    /// Stores a new attempt, its first history entry and an event.
    ///
    /// # Errors
    /// `Conflict` if the attempt exists, the task does not, or the task has an open round.
    pub async fn insert_round(&mut self, round: &Round) -> Result<()> {
        self.insert(round).await?;
        self.add_round_change(round, 0).await
    }

    pub async fn round(&mut self, key: RoundKey) -> Result<Option<RoundRow>> {
        self.find(rounds!("WHERE task = ?1 AND number = ?2 ORDER BY attempt DESC LIMIT 1"), (key.task, key.number))
            .await
    }

    pub async fn round_attempt(&mut self, attempt: Attempt) -> Result<Option<RoundRow>> {
        self.find(rounds!("WHERE task = ?1 AND number = ?2 AND attempt = ?3"), attempt).await
    }

    /// The latest attempt of each round numbered below `before_number`, newest first.
    pub async fn rounds(&mut self, task: TaskId, before_number: Option<u32>, limit: u32) -> Result<Vec<RoundRow>> {
        self.rounds_where(task, &RoundFilter::default(), before_number, limit).await
    }

    /// The same, of those that a filter takes.
    pub async fn rounds_where(
        &mut self,
        task: TaskId,
        filter: &RoundFilter,
        before_number: Option<u32>,
        limit: u32,
    ) -> Result<Vec<RoundRow>> {
        let (before, since) = (Before(before_number), filter.since.unwrap_or(Timestamp(i64::MIN)));
        match &filter.device {
            None => self.list(latest_rounds!(""), (task, before, limit, since, filter.states())).await,
            Some(device) => {
                self.list(
                    latest_rounds!(
                        "AND EXISTS (SELECT 1 FROM noised_sum AS made
                                     WHERE made.task = round.task AND made.number = round.number
                                       AND made.attempt = round.attempt AND ?6 IN (made.sum_device, made.unmask_device)) "
                    ),
                    (task, before, limit, since, filter.states(), device),
                )
                .await
            }
        }
    }

    /// Every attempt that has not ended, of all tasks.
    pub async fn open_rounds(&mut self) -> Result<Vec<RoundRow>> {
        self.list(rounds!("WHERE state NOT IN ('COMPLETED', 'FAILED', 'CANCELLED') ORDER BY task"), ()).await
    }

    /// Compare and swap: if the attempt is in `before.state`, since `before.state_since`, stores the state, limits,
    /// cohort and failure of `after`, a history entry and an event. False if another writer was faster.
    pub async fn transition_round(&mut self, before: &Round, after: &Round) -> Result<bool> {
        if before.key != after.key {
            return Err(StoreError::fault("a transition from one round to another"));
        }
        let attempt = after.key;
        let changed = self
            .change_returning(
                "UPDATE round SET state = ?6, state_since = ?7, limits = ?8, cohort = ?9, failure = ?10
                 WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND state = ?4 AND state_since = ?5
                 RETURNING (SELECT count(*) FROM admitted WHERE task = ?1 AND number = ?2 AND attempt = ?3)",
                (
                    (attempt, before.state, before.state_since),
                    (after.state, after.state_since, &after.limits, after.cohort, after.failure),
                ),
            )
            .await?;
        let Some(reported) = changed else { return Ok(false) };
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
            _ => reported,
        };
        self.add_round_change(after, count).await?;
        Ok(true)
    }

    /// Starts the time of the present state anew, after a clock was set back. False if the attempt is not in `state`.
    pub async fn rebase_round(&mut self, attempt: Attempt, state: RoundState, state_since: Timestamp) -> Result<bool> {
        self.change_one(
            "UPDATE round SET state_since = ?5 WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND state = ?4",
            (attempt, state, state_since),
        )
        .await
    }

    /// Records the results of the round. Returns false if the attempt does not exist.
    pub async fn set_round_result(
        &mut self,
        attempt: Attempt,
        metrics: &[RoundMetric],
        model_version: Option<u32>,
    ) -> Result<bool> {
        if let Some(metric) = metrics.iter().find(|metric| !metric.value.is_finite()) {
            return Err(StoreError::fault(format!("metric {:?} is {}, not finite", metric.name, metric.value)));
        }
        self.change_one(
            "UPDATE round SET metrics = ?4, model_version = ?5 WHERE task = ?1 AND number = ?2 AND attempt = ?3",
            (attempt, Json(metrics), model_version),
        )
        .await
    }

    /// Counts bytes sent at `now` to the cohorts of attempts while each was in that state. Ignores attempts that do
    /// not exist.
    pub async fn add_traffic(&mut self, sent: &[(Attempt, RoundState, u64)], now: Timestamp) -> Result<()> {
        self.change_of(
            sent.len(),
            "INSERT INTO round_traffic (task, number, attempt, state, part, bytes_down)
             SELECT sent.task, sent.number, sent.attempt, sent.state, ?2, sent.bytes
             FROM {?1 task:bytes number:integer attempt:integer state:text bytes:integer} AS sent
             CROSS JOIN round
                ON round.task = sent.task AND round.number = sent.number AND round.attempt = sent.attempt
             ON CONFLICT (task, number, attempt, state, part) DO UPDATE
             SET bytes_down = round_traffic.bytes_down + excluded.bytes_down",
            (sent, now.0.rem_euclid(TRAFFIC_ROWS).unsigned_abs()),
        )
        .await
        .map(drop)
    }
}

impl Transaction<'_> {
    async fn add_round_change(&mut self, round: &Round, count: u32) -> Result<()> {
        self.note_of_round(round);
        self.must_change_one(
            "INSERT INTO round_change (task, number, attempt, state, at, count) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            (round.key, round.state, round.state_since, count),
        )
        .await
    }
}

impl Transaction<'_> {
    /// Notes that a round has entered its state. The number of participants is omitted: it is secret in some tasks.
    fn note_of_round(&mut self, round: &Round) {
        let (at, subject) = (round.state_since, Subject::Round(round.key));
        let base_version = ("base_version", Fact::from(round.base_version));
        match round.state {
            RoundState::Selecting => self.note_event(at, EventKind::RoundOpened, subject, [base_version]),
            RoundState::Completed => self.note_event(at, EventKind::RoundCompleted, subject, []),
            RoundState::Cancelled => self.note_event(at, EventKind::RoundCancelled, subject, []),
            RoundState::Failed => {
                let reason = round.failure.map_or("", FailureReason::as_str);
                self.note_event(at, EventKind::RoundFailed, subject, [("reason", Fact::from(reason))]);
            }
            state @ (RoundState::Sharing
            | RoundState::Collecting
            | RoundState::Confirming
            | RoundState::Unmasking
            | RoundState::Aggregating) => {
                self.note_event(at, EventKind::RoundAdvanced, subject, [("state", Fact::from(state.as_str()))]);
            }
        }
    }
}

impl FromRow for RoundRow {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        let round = Round::from_row(row)?;
        Ok(Self {
            reported: row.get("reported")?,
            bytes_up: row.get("bytes_up")?,
            bytes_down: row.get("bytes_down")?,
            metrics: row.get("metrics")?,
            model_version: row.get("model_version")?,
            ended_at: round.state.is_terminal().then_some(round.state_since),
            round,
        })
    }
}
