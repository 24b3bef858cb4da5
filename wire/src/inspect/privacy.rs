//! Privacy ledgers: upper bounds on the information that tasks revealed about their participants.

use federation::id::TaskId;
use federation::time::Timestamp;
use serde::{Deserialize, Serialize};
use task_spec::{PrivacyAccounting, PrivacyMechanism, PrivacySpec};

/// Three separate figures at one delta, which must not be mixed up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EpsilonView {
    /// Against observers of the published models who do not know the cohorts.
    pub published: f64,
    /// Against observers who also know the cohorts, as every reader of a round's participants does.
    pub cohort_known: f64,
    /// Against the coordinator itself.
    pub server: Option<f64>,
    /// Reason that `server` is absent: `server_trusted` if the coordinator adds the noise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_reason: Option<String>,
}

/// One row of the ledger: a release, or an attempt that may have been one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReleaseView {
    /// From 0, without gaps.
    pub index: u64,
    pub round: u32,
    pub attempt: u32,
    /// False if the round failed after its sum may have been opened: it is charged, but published nothing.
    pub published: bool,
    pub mechanism: PrivacyMechanism,
    /// Number of participants in the sum. Absent if the published figure relies on the secrecy of the cohort size, so
    /// that the ledger reveals nothing beyond that figure; rounds show it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub participants: Option<u32>,
    /// Standard deviation of the noise in the sum over the sensitivity.
    pub noise_multiplier: f64,
    /// The release as accountants take it: noise, sensitivity, dimension, sampling; integers on the grid. Omits
    /// `participants` if absent above.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub parameters: serde_json::Value,
    /// zCDP of this release to observers who know the cohort.
    pub rho: Option<f64>,
    /// Published epsilon of this release alone, by Rényi divergence.
    pub rdp: f64,
    /// As `rdp`, for the textbook release with continuous noise by its privacy loss distribution, for comparison.
    pub pld: Option<f64>,
    /// Totals after this release.
    pub total: EpsilonView,
    /// Accounting behind `total.published`: `pld`, the privacy loss distribution of continuous noise plus the proven
    /// difference of the actual noise; or `general`, Rényi bounds. Absent in old rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accounting: Option<PrivacyAccounting>,
    /// When it was charged, before any part of it left.
    pub at: Timestamp,
}

/// Body of [`crate::route::TASK_PRIVACY`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PrivacyReport {
    /// As the operator wrote it, with the computed noise multiplier filled in.
    pub spec: PrivacySpec,
    /// Expected number of participants per round.
    pub cohort: u32,
    /// Fewest updates in a released sum.
    pub smallest_cohort: u32,
    /// Number of them that may reveal their share of the noise to the coordinator without breaking the guarantee.
    pub colluders: u32,
    /// Current bound on the L2 norm of updates.
    pub clip: f64,
    pub spent: EpsilonView,
    /// Number of further rounds that the budget allows; absent without a budget.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rounds_left: Option<u32>,
    /// One page of releases, oldest first.
    pub releases: Vec<ReleaseView>,
    /// `cursor` of the next page; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// Body of [`crate::route::PRIVACY`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PrivacyTotal {
    /// Delta of the total: the smallest of the tasks' deltas, unless `?delta=` is given. Absent without a private task.
    pub delta: Option<f64>,
    /// Spent on a participant of all tasks; absent while one of their ledgers is damaged.
    pub spent: Option<EpsilonView>,
    /// All private tasks, including those that are over, newest first.
    pub tasks: Vec<TaskPrivacy>,
}

/// Budget spent by one private task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TaskPrivacy {
    pub task: TaskId,
    pub name: String,
    pub mechanism: PrivacyMechanism,
    /// Delta of the task's own figures.
    pub delta: Option<f64>,
    /// Number of releases charged.
    pub releases: u64,
    /// Spent by this task alone; absent if its ledger is damaged.
    pub spent: Option<EpsilonView>,
    /// How its ledger is damaged, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damaged: Option<String>,
}
