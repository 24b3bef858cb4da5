//! `[aggregation] gate`: rejects a model version if a metric became too much worse.

use serde::{Deserialize, Serialize};

/// How far a metric may worsen from one model version to the next.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GateSpec {
    /// One of the task's metrics, measured on the received model: `accuracy` or `loss`, not `train_loss`.
    pub metric: String,
    /// Maximum change for the worse, in the metric's unit; above 0. Leave room for differences between cohorts.
    pub max_fall: f64,
    /// The better direction. Default: higher.
    #[serde(default)]
    pub better: Better,
}

/// The better direction of a metric.
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
