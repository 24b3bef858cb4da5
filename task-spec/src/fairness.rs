//! q-FFL in a task: participants whom the model serves badly count for more. The arithmetic is `learning`'s.

use serde::{Deserialize, Serialize};

use super::TaskSpec;
use super::check::Checks;

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

impl TaskSpec {
    /// What can be said without the codec; whether weights are fine enough is `learning`'s to check.
    pub(super) fn check_fairness(&self, checks: &mut Checks) {
        let Some(fairness) = &self.training.fairness else { return };
        checks.require((0.0..=10.0).contains(&fairness.q), "training.fairness.q", "must be between 0 and 10");
        for (field, value) in [
            ("training.fairness.loss_cap", Some(fairness.loss_cap)),
            ("training.fairness.lipschitz", fairness.lipschitz),
        ] {
            let holds = value.is_none_or(|value| (1e-9..=1e9).contains(&value));
            checks.require(holds, field, "must be between 1e-9 and 1e9");
        }
        checks.require(
            !self.privacy.is_private(),
            "training.fairness",
            "does not go with [privacy]: there the mean has a fixed denominator, which a weight by the loss would need measured",
        );
        checks.require(
            self.privacy.is_private() || self.aggregation.clip_norm.is_some(),
            "aggregation.clip_norm",
            "is needed with training.fairness: an update's weight grows with the square of its length",
        );
        checks.require(
            self.metrics.iter().any(|name| name == "loss"),
            "metrics",
            "must name \"loss\" with training.fairness: participants are weighed by it",
        );
    }
}
