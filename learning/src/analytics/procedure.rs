//! The interface of all kinds of analysis.

use super::error::AnalyticsError;
use super::private::Part;
use super::sum_codec::Field;
use super::table::Table;
use crate::metrics::MetricValue;

/// Maximum size of a state, in bytes.
pub const MAX_STATE_BYTES: usize = 1 << 26;

/// A state, and the metrics of the round before it.
#[derive(Clone, Debug, PartialEq)]
pub struct Advanced<S> {
    pub state: S,
    pub metrics: Vec<(String, MetricValue)>,
}

/// Properties of the sum that limit the resolution of its grids.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) modulus_bits: u8,
    pub(super) max_cohort: u32,
}

/// A kind of analysis.
pub(super) trait Procedure {
    type State: Clone;

    /// The fields of a contribution; the same in every round.
    fn fields(&self) -> Vec<Field>;
    fn rounds(&self) -> u32;
    /// Number of completed rounds of a state.
    fn done(&self, state: &Self::State) -> u32;
    /// The state before the first round.
    fn initial(&self) -> Self::State;
    /// Validates a deserialized state of this analysis.
    fn check(&self, state: &Self::State) -> Result<(), AnalyticsError>;
    /// Adds a participant's rows to `out`, which starts at zero.
    fn contribution(&self, state: &Self::State, table: &Table, out: &mut [i64]) -> Result<(), AnalyticsError>;
    /// The parts of a contribution to this state for noise, in order and over all values; `None` if noise would make the results of this
    /// kind of analysis meaningless.
    fn private_parts(&self, state: &Self::State) -> Option<Vec<Part>>;
    /// Moves estimates with noise to the nearest sums that participants can have, given the noise in each of
    /// [`Self::private_parts`].
    fn repair(&self, _state: &Self::State, _sum: &mut [i64], _noise: &[f64]) {}
    /// The next state, given the sum.
    fn advance(
        &self,
        state: &Self::State,
        sum: &[i64],
        participants: u32,
    ) -> Result<Advanced<Self::State>, AnalyticsError>;
    /// The same, given estimates of the sum and their noise: leaves out results that noise makes meaningless.
    fn advance_noised(
        &self,
        state: &Self::State,
        sum: &[i64],
        participants: u32,
        _noise: &[f64],
    ) -> Result<Advanced<Self::State>, AnalyticsError> {
        self.advance(state, sum, participants)
    }
}
