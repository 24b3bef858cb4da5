//! `training.optimizer`: how local steps follow gradients. The arithmetic is in the SDK's trainer.

use serde::{Deserialize, Serialize};

/// The rule of a local step. Its state begins anew in each round.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum LocalOptimizer {
    /// Stochastic gradient descent, with `momentum` and with `weight_decay` as a term of the gradient.
    Sgd {},
    /// Loshchilov and Hutter 2019: steps of similar size in every coordinate, and `weight_decay` apart from the gradient.
    #[serde(rename = "adamw")]
    AdamW {
        /// β₁, 0 to below 1.
        #[serde(default = "beta1")]
        beta1: f64,
        /// β₂, 0 to below 1.
        #[serde(default = "beta2")]
        beta2: f64,
        /// ε, above 0: smaller is more adaptive.
        #[serde(default = "epsilon")]
        epsilon: f64,
    },
}

fn beta1() -> f64 {
    0.9
}

fn beta2() -> f64 {
    0.999
}

fn epsilon() -> f64 {
    1e-8
}

impl Default for LocalOptimizer {
    fn default() -> Self {
        Self::Sgd {}
    }
}

impl LocalOptimizer {
    /// `AdamW` with its usual numbers.
    #[must_use]
    pub fn adamw() -> Self {
        Self::AdamW { beta1: beta1(), beta2: beta2(), epsilon: epsilon() }
    }

    /// Whether it is the default.
    #[must_use]
    pub fn is_sgd(&self) -> bool {
        matches!(self, Self::Sgd {})
    }
}
