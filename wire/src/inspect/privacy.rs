//! What a task has told about its participants so far, at most.

use federation::id::TaskId;
use federation::time::Timestamp;
use serde::{Deserialize, Serialize};
use task_spec::{PrivacyAccounting, PrivacyMechanism, PrivacySpec};

/// Three figures, never one for another, all at one delta.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EpsilonView {
    /// Of those who see the published models and do not know who took part.
    pub published: f64,
    /// Of those who also see who took part: whoever reads a round's participants here.
    pub cohort_known: f64,
    /// Of the coordinator itself.
    pub server: Option<f64>,
    /// Why it has none: `server_trusted`, where the coordinator adds the noise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_reason: Option<String>,
}

/// One row of the ledger: something that was released, or may have been.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReleaseView {
    /// From 0, without gaps.
    pub index: u64,
    /// The round's number.
    pub round: u32,
    /// Its attempt.
    pub attempt: u32,
    /// False: the round failed when its sum may have been opened, so it is charged, but published nothing.
    pub published: bool,
    /// What ran.
    pub mechanism: PrivacyMechanism,
    /// Participants whose updates are in the sum; absent where the published figure rests on nobody knowing how many were drawn,
    /// so that the ledger tells nothing which that figure does not cover. Rounds tell it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub participants: Option<u32>,
    /// Standard deviation of the noise in the sum over the sensitivity.
    pub noise_multiplier: f64,
    /// The release in full, as the accountants take it: noise, sensitivity, dimension, sampling; integers on the grid. Without
    /// `participants` where that is absent above.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub parameters: serde_json::Value,
    /// zCDP of this release to those who know who took part.
    pub rho: Option<f64>,
    /// Epsilon of this release alone, published, by Rényi divergence.
    pub rdp: f64,
    /// The same of the textbook release with continuous noise by its loss distribution, for comparison.
    pub pld: Option<f64>,
    /// Spent after it.
    pub total: EpsilonView,
    /// What `total.published` rests on: `pld`, the privacy loss distribution of continuous noise plus what the noise that was
    /// drawn is proven to differ from it by; or `general`, Rényi bounds. Absent in rows from before rows said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accounting: Option<PrivacyAccounting>,
    /// When it was charged: before anything of it left.
    pub at: Timestamp,
}

/// Body of [`crate::route::TASK_PRIVACY`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PrivacyReport {
    /// As the operator wrote it, and the noise multiplier that was solved for.
    pub spec: PrivacySpec,
    /// How many participants a round is expected to have.
    pub cohort: u32,
    /// Fewest updates of a released sum.
    pub smallest_cohort: u32,
    /// How many of those may tell the coordinator their share of the noise without breaking the promise.
    pub colluders: u32,
    /// L2 norm that updates are scaled down to now.
    pub clip: f64,
    /// Spent so far.
    pub spent: EpsilonView,
    /// How many more rounds the budget has room for; none without a budget.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rounds_left: Option<u32>,
    /// Releases, oldest first: one page of them.
    pub releases: Vec<ReleaseView>,
    /// Send it as `cursor` for the next page; none on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// Body of [`crate::route::PRIVACY`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PrivacyTotal {
    /// At which the total is: the smallest of the tasks' deltas, unless `?delta=` says another. None without a private task.
    pub delta: Option<f64>,
    /// Spent on a participant that took part in all of them; none while one of their ledgers cannot be trusted.
    pub spent: Option<EpsilonView>,
    /// Every private task, also those that are over, newest first.
    pub tasks: Vec<TaskPrivacy>,
}

/// What one private task has spent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TaskPrivacy {
    /// The task.
    pub task: TaskId,
    /// Its name.
    pub name: String,
    /// What ran.
    pub mechanism: PrivacyMechanism,
    /// At which its own figures are.
    pub delta: Option<f64>,
    /// How many releases were charged.
    pub releases: u64,
    /// Spent on it alone; none if its ledger cannot be trusted.
    pub spent: Option<EpsilonView>,
    /// Why its ledger cannot be trusted, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damaged: Option<String>,
}
