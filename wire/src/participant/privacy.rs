//! Privacy terms, sent to a participant before it trains.
//!
//! Both sides derive grid, clipping, noise shares and cost from these numbers with the same code (crate `recipe`), so their results are
//! equal.

use serde::{Deserialize, Serialize};
use task_spec::PrivacySpec;

/// The privacy guarantee of a task, and its parameters in this round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PrivacyTerms {
    /// As the operator wrote it; `noise_multiplier` is always set.
    pub spec: PrivacySpec,
    /// Expected number of participants per round, the denominator of the mean.
    pub cohort: u32,
    /// Fewest updates in a released sum, which the participants' noise assumes.
    pub smallest_cohort: u32,
    /// Number of them that may reveal their share of the noise to the coordinator.
    pub colluders: u32,
    /// Rounds of the task.
    pub rounds: u32,
    /// Bound on the L2 norm of updates in this round.
    pub clip: f64,
}
