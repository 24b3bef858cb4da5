//! q-FFL in a task: participants with a high loss count for more. The arithmetic is in `learning`.

use serde::{Deserialize, Serialize};

/// Weights participants by their loss of the received model instead of by their number of examples (Li et al. 2020,
/// q-FFL).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Fairness {
    /// 0 weights all participants alike; a larger q favours those with a high loss. At most 10.
    pub q: f64,
    /// Cap on losses; ideally slightly above the first round's loss.
    pub loss_cap: f64,
    /// L: the Lipschitz constant of the gradient. Default: 1 over the learning rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lipschitz: Option<f64>,
}

impl Fairness {
    /// L, or its default for this learning rate.
    #[must_use]
    pub fn lipschitz(&self, learning_rate: f64) -> f64 {
        self.lipschitz.unwrap_or(1.0 / learning_rate)
    }
}
