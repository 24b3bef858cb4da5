//! `[aggregation]` of a task: how updates become a model version.

use serde::{Deserialize, Serialize};

use crate::{GateSpec, RobustSpec, ServerOptimizer};

/// How updates are encoded, summed and applied.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AggregationSpec {
    pub optimizer: ServerOptimizer,
    /// Modulus of the sum, in bits: 16 to 32.
    pub modulus_bits: u8,
    /// Coordinates of an update are clipped to ± this.
    pub clip_range: f32,
    /// Bound on the L2 norm of an update, which is scaled down to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clip_norm: Option<f32>,
    /// Cap on the weight of an update, which is its number of training examples.
    pub max_weight: u32,
    /// A rule that limits the influence of hostile updates. Default: the weighted mean.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub robust: Option<RobustSpec>,
    /// Rejects a version that worsened a metric too far, and rolls back. Default: every version is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gate: Option<GateSpec>,
}

impl Default for AggregationSpec {
    fn default() -> Self {
        Self {
            optimizer: ServerOptimizer::default(),
            modulus_bits: 32,
            clip_range: 1.0,
            clip_norm: None,
            max_weight: 1000,
            robust: None,
            gate: None,
        }
    }
}
