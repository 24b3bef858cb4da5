//! `[aggregation] gate`: refuses a model version that made a metric fall too far.

use serde::{Deserialize, Serialize};

/// How far a metric may fall from one model version to the next.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GateSpec {
    /// One of the task's metrics, measured on the received model: `accuracy` or `loss`, not `train_loss`.
    pub metric: String,
    /// The most that it may get worse by, in its own unit; above 0. Cohorts differ, so leave room for that.
    pub max_fall: f64,
    /// Which way is better. Default: higher.
    #[serde(default)]
    pub better: Better,
}

/// Which way a metric is better.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Better {
    /// Like accuracy.
    #[default]
    Higher,
    /// Like a loss.
    Lower,
}
