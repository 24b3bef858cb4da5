//! What every kind of analysis is.

use super::error::AnalyticsError;
use super::sum_codec::Field;
use super::table::Table;
use crate::metrics::MetricValue;

/// Largest state, as bytes.
pub const MAX_STATE_BYTES: usize = 1 << 26;

/// A state and what the round showed on its way there.
#[derive(Clone, Debug, PartialEq)]
pub struct Advanced<S> {
    /// The next state.
    pub state: S,
    /// For the round's report.
    pub metrics: Vec<(String, MetricValue)>,
}

/// The sum's terms: they decide how fine its grids can be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) modulus_bits: u8,
    pub(super) max_cohort: u32,
}

/// What every kind of analysis is.
pub(super) trait Procedure {
    type State: Clone;

    /// What one contribution holds; the same in every round.
    fn fields(&self) -> Vec<Field>;
    /// Rounds until the result.
    fn rounds(&self) -> u32;
    /// Rounds that a state has behind it.
    fn done(&self, state: &Self::State) -> u32;
    /// Before the first round.
    fn initial(&self) -> Self::State;
    /// Whether a state that was read is one of this analysis.
    fn check(&self, state: &Self::State) -> Result<(), AnalyticsError>;
    /// Adds up a participant's rows; `out` is zero.
    fn contribution(&self, state: &Self::State, table: &Table, out: &mut [i64]) -> Result<(), AnalyticsError>;
    /// From the sum to the next state.
    fn advance(
        &self,
        state: &Self::State,
        sum: &[i64],
        participants: u32,
    ) -> Result<Advanced<Self::State>, AnalyticsError>;
}
