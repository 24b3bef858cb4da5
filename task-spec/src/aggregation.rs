//! `[aggregation]` of a task: how updates become a model version.

use serde::{Deserialize, Serialize};

use crate::{GateSpec, RobustSpec, ServerOptimizer};

/// How updates are encoded, summed and applied.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AggregationSpec {
    /// The server optimizer.
    pub optimizer: ServerOptimizer,
    /// Updates are sums modulo 2^bits, 16 to 32.
    pub modulus_bits: u8,
    /// Each coordinate of an update is clipped to ± this.
    pub clip_range: f32,
    /// The whole update is scaled down to this L2 norm.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clip_norm: Option<f32>,
    /// An update weighs as many as its training examples, at most this.
    pub max_weight: u32,
    /// Combines updates so that a few hostile ones cannot steer the model. Left out: their weighted mean.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub robust: Option<RobustSpec>,
    /// Refuses a version that made a metric fall too far, and rolls back. Left out: every version stays.
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
