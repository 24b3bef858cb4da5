//! Rounds: each attempt is a row, each state it entered a history entry.

use async_trait::async_trait;
use federation::id::{Attempt, RoundKey, TaskId};
use federation::round::{Round, RoundState};
use federation::time::Timestamp;
use serde::{Deserialize, Serialize};

use crate::error::Result;

/// One attempt at a round, with its results so far.
#[derive(Clone, Debug, PartialEq)]
pub struct RoundRow {
    /// The input of the rules of rounds.
    pub round: Round,
    /// Number of admitted inputs.
    pub reported: u32,
    /// Size of the admitted inputs, in bytes.
    pub bytes_up: u64,
    /// Bytes sent to the cohort, as reported to [`Rounds::add_bytes_down`].
    pub bytes_down: u64,
    /// The cohort's weighted means, once known.
    pub metrics: Vec<RoundMetric>,
    pub model_version: Option<u32>,
    pub ended_at: Option<Timestamp>,
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

/// Reads and changes rounds.
#[async_trait]
pub trait Rounds {
    /// Stores a new attempt and its first history entry.
    ///
    /// # Errors
    /// `Conflict` if the attempt exists, the task does not, or the task has an open round.
    async fn insert_round(&mut self, round: &Round) -> Result<()>;

    async fn round(&mut self, key: RoundKey) -> Result<Option<RoundRow>>;

    async fn round_attempt(&mut self, attempt: Attempt) -> Result<Option<RoundRow>>;

    /// The latest attempt of each round numbered below `before_number`, newest first.
    async fn rounds(&mut self, task: TaskId, before_number: Option<u32>, limit: u32) -> Result<Vec<RoundRow>>;

    /// Every attempt that has not ended, of all tasks.
    async fn open_rounds(&mut self) -> Result<Vec<RoundRow>>;

    /// Compare and swap: if the attempt is in `before.state`, since `before.state_since`, stores the state, limits,
    /// cohort and failure of `after`, and a history entry. False if another writer was faster.
    async fn transition_round(&mut self, before: &Round, after: &Round) -> Result<bool>;

    /// Starts the time of the present state anew, after a clock was set back. False if the attempt is not in `state`.
    async fn rebase_round(&mut self, attempt: Attempt, state: RoundState, state_since: Timestamp) -> Result<bool>;

    /// Records the results of the round. False if there is no such attempt.
    async fn set_round_result(
        &mut self,
        attempt: Attempt,
        metrics: &[RoundMetric],
        model_version: Option<u32>,
    ) -> Result<bool>;

    /// Counts bytes sent to the cohort while the attempt was in `state`. False if there is no such attempt.
    async fn add_bytes_down(&mut self, attempt: Attempt, state: RoundState, bytes: u64) -> Result<bool>;
}
