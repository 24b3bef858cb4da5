//! `[rounds]` of a task, and the size of a round.

use serde::{Deserialize, Serialize};

use crate::Better;

/// The number of rounds, and the limits of each phase. Omitted values are derived from the cohort.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RoundsSpec {
    /// Number of rounds after which the task is complete.
    pub count: u32,
    /// Number of failed attempts at one round after which the task is paused; 0 for no limit.
    pub max_attempts: u32,
    /// Eligible participants required before a cohort is drawn. Default: the cohort's count, or 2 for a fraction.
    pub select_min: Option<u32>,
    /// Maximum cohort, over-selection included.
    pub select_max: u32,
    /// How long to wait for participants.
    pub select_deadline_ms: u64,
    /// Fewest masked inputs for a successful round. Default: half of the smallest target.
    pub collect_min: Option<u32>,
    /// Number of masked inputs at which collection closes early. Default: the target without over-selection.
    pub collect_max: Option<u32>,
    /// Time for participants to train and upload.
    pub collect_deadline_ms: u64,
    /// Time to sum and publish.
    pub aggregate_deadline_ms: u64,
    /// Promotes the version that a cohort has measured best. Default: promotion is the operator's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_best: Option<KeepBest>,
    /// Completes the task after so many rounds without a better version, at least 1; needs `keep_best`. Default: all rounds take place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_after: Option<u32>,
}

/// How versions are compared: by a metric that each cohort measures on the version it received.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct KeepBest {
    /// One of the task's metrics, measured on the received model: `accuracy` or `loss`, not `train_loss`.
    pub metric: String,
    /// The better direction. Default: higher.
    #[serde(default)]
    pub better: Better,
}

impl Default for RoundsSpec {
    fn default() -> Self {
        Self {
            count: 10,
            max_attempts: 0,
            select_min: None,
            select_max: 1024,
            select_deadline_ms: 600_000,
            collect_min: None,
            collect_max: None,
            collect_deadline_ms: 600_000,
            aggregate_deadline_ms: 600_000,
            keep_best: None,
            stop_after: None,
        }
    }
}
