//! Privacy: what a participant is told about the noise before it trains.
//!
//! Both sides derive grid, clipping, noise shares and cost from these numbers by the same code (the crate `recipe`), so none of
//! them can be told another.

use serde::{Deserialize, Serialize};
use task_spec::PrivacySpec;

/// The promise of a task, and what it rests on in this round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PrivacyTerms {
    /// As the operator wrote it; `noise_multiplier` is always given.
    pub spec: PrivacySpec,
    /// How many participants a round is expected to have; the mean is over this number.
    pub cohort: u32,
    /// Fewest updates of a released sum: the noise of the participants counts on so many.
    pub smallest_cohort: u32,
    /// How many of those may tell the coordinator their share of the noise.
    pub colluders: u32,
    /// Rounds of the task.
    pub rounds: u32,
    /// L2 norm that updates are scaled down to in this round.
    pub clip: f64,
}
