//! Weights by loss, and incompatible settings.

use crate::TaskSpec;
use crate::problem::Checks;

impl TaskSpec {
    /// Checks without a codec; `learning` checks the resolution of weights.
    pub(super) fn check_fairness(&self, checks: &mut Checks) {
        let Some(fairness) = &self.training.fairness else { return };
        checks.within(fairness.q, 0.0..=10.0, "training.fairness.q");
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
