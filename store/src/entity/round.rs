//! Rounds: each attempt is a row, each state it went through a line of history.

use async_trait::async_trait;
use federation::id::{Attempt, RoundKey, TaskId};
use federation::round::{Round, RoundState};
use federation::time::Timestamp;
use serde::{Deserialize, Serialize};

use crate::error::Result;

/// One attempt at a round, with what came of it so far.
#[derive(Clone, Debug, PartialEq)]
pub struct RoundRow {
    /// What the rules of rounds look at.
    pub round: Round,
    /// Inputs admitted.
    pub reported: u32,
    /// Bytes of the inputs admitted.
    pub bytes_up: u64,
    /// Bytes sent to the cohort, as far as [`Rounds::add_bytes_down`] was told.
    pub bytes_down: u64,
    /// The cohort's weighted means, once known.
    pub metrics: Vec<RoundMetric>,
    /// The model version it published.
    pub model_version: Option<u32>,
    /// When it came to its end.
    pub ended_at: Option<Timestamp>,
}

/// A weighted mean over the cohort.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoundMetric {
    /// One of the names the task declares.
    pub name: String,
    /// The mean; finite.
    pub value: f64,
    /// The weight behind it: examples.
    pub count: u64,
}

/// One state that a round entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundChange {
    /// The state that began.
    pub state: RoundState,
    /// When.
    pub at: Timestamp,
    /// Participants that brought the attempt here: 0 for SELECTING; the cohort for the state after it; after SHARING,
    /// CONFIRMING and UNMASKING those who answered that phase; after COLLECTING, and for the end, inputs admitted.
    pub count: u32,
}

/// Reads and changes rounds.
#[async_trait]
pub trait Rounds {
    /// Stores a new attempt and the first line of its history.
    ///
    /// # Errors
    /// `Conflict` if the attempt exists, the task does not, or the task has a round that is still open.
    async fn insert_round(&mut self, round: &Round) -> Result<()>;

    /// The latest attempt.
    async fn round(&mut self, key: RoundKey) -> Result<Option<RoundRow>>;

    /// One attempt.
    async fn round_attempt(&mut self, attempt: Attempt) -> Result<Option<RoundRow>>;

    /// The latest attempt of each round numbered below `before_number`, newest first.
    async fn rounds(&mut self, task: TaskId, before_number: Option<u32>, limit: u32) -> Result<Vec<RoundRow>>;

    /// Every attempt that has not ended, of all tasks.
    async fn open_rounds(&mut self) -> Result<Vec<RoundRow>>;

    /// Compare and swap: if the attempt is in `before.state`, and has been since `before.state_since`, it takes over the
    /// state, limits, cohort and failure of `after`, and history gets a line. False if somebody else was faster.
    async fn transition_round(&mut self, before: &Round, after: &Round) -> Result<bool>;

    /// Starts the time of the present state anew, after a clock was set back. False if the attempt is not in `state`.
    async fn rebase_round(&mut self, attempt: Attempt, state: RoundState, state_since: Timestamp) -> Result<bool>;

    /// Records what the round yielded. False if there is no such attempt.
    async fn set_round_result(
        &mut self,
        attempt: Attempt,
        metrics: &[RoundMetric],
        model_version: Option<u32>,
    ) -> Result<bool>;

    /// Counts bytes sent to the cohort while the attempt was in `state`. False if there is no such attempt.
    async fn add_bytes_down(&mut self, attempt: Attempt, state: RoundState, bytes: u64) -> Result<bool>;
}
