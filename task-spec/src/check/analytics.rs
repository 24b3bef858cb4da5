//! Requirements of an analysis on the rest of the task.

use crate::problem::Checks;
use crate::{Analytics, MAX_ANALYTICS_BYTES, ModelSpec, TaskSpec, TrainingPlan};

impl TaskSpec {
    /// Rejects settings that are unsupported or meaningless for an analysis.
    pub(super) fn check_analytics(&self, analytics: &Analytics, checks: &mut Checks) {
        checks.require(
            analytics.to_bytes().len() <= MAX_ANALYTICS_BYTES,
            "analytics",
            "must be at most 1 MiB; `repeat` describes many equal columns at once",
        );
        checks.require(
            self.model == ModelSpec { table: self.model.table.clone(), ..ModelSpec::default() },
            "model",
            "must be left out except for model.table: an analysis has no model, its state is what is published",
        );
        checks.require(
            self.training == TrainingPlan::default(),
            "training",
            "must be left out: an analysis trains nothing",
        );
        checks.require(
            !self.privacy.is_private(),
            "privacy.mechanism",
            "must be left out: noise is calibrated to the norm of a clipped update, and the counts and sums of an analysis have \
             none that is declared",
        );
        for (field, given) in [
            ("aggregation.robust", self.aggregation.robust.is_some()),
            ("aggregation.gate", self.aggregation.gate.is_some()),
        ] {
            checks.require(!given, field, "must be left out: an analysis is the sum of what everybody has");
        }
        checks.require(
            !self.selection.strategy.follows_the_loss(),
            "selection.strategy",
            "cannot follow losses: an analysis trains nothing; \"uniform\" and \"round_robin\" do for it",
        );
    }
}
