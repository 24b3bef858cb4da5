//! q-FFL in a task: participants whom the model serves badly count for more. The arithmetic is `learning`'s.

use serde::{Deserialize, Serialize};

/// Weighs participants by their loss of the received model instead of by their examples (Li et al. 2020, q-FFL).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Fairness {
    /// 0: everybody counts alike; the larger, the more the worst served count. At most 10.
    pub q: f64,
    /// Losses above this count as this; best a little above the loss of the first round.
    pub loss_cap: f64,
    /// L: how fast the loss may bend. Default: 1 over the learning rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lipschitz: Option<f64>,
}

impl Fairness {
    /// L, given the learning rate of the plan.
    #[must_use]
    pub fn lipschitz(&self, learning_rate: f64) -> f64 {
        self.lipschitz.unwrap_or(1.0 / learning_rate)
    }
}
