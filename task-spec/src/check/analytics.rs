//! Requirements of an analysis on the rest of the task.

use crate::problem::Checks;
use crate::{Analytics, Clip, MAX_ANALYTICS_BYTES, ModelSpec, TaskSpec, TrainingPlan};

impl TaskSpec {
    /// Rejects settings that are unsupported or meaningless for an analysis.
    pub(super) fn check_analytics(&self, analytics: &Analytics, checks: &mut Checks) {
        checks.require(
            analytics.to_bytes().len() <= MAX_ANALYTICS_BYTES,
            "analytics",
            "must be at most 1 MiB; `repeat` describes many equal columns at once",
        );
        if analytics.is_evaluation() {
            self.check_evaluation(checks);
        } else {
            checks.require(
                self.model == ModelSpec { table: self.model.table.clone(), ..ModelSpec::default() },
                "model",
                "must be left out except for model.table: an analysis has no model, its state is what is published",
            );
        }
        checks.require(
            self.training == TrainingPlan::default(),
            "training",
            "must be left out: an analysis trains nothing",
        );
        self.check_private_analysis(checks);
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

    /// Rejects an evaluation of a model that is not given, or of which each device has a part of its own.
    fn check_evaluation(&self, checks: &mut Checks) {
        checks.require(
            self.model.initial.is_some(),
            "model.initial",
            "must name the model to evaluate: a safetensors file, or { task = \"…\", version = N }",
        );
        checks.require(
            self.model.personal.is_empty(),
            "model.personal",
            "must be left out: an evaluation is of one model for all",
        );
    }

    /// Rejects settings of privacy that an analysis decides itself.
    fn check_private_analysis(&self, checks: &mut Checks) {
        let privacy = &self.privacy;
        checks.require(
            !privacy.mechanism.is_correlated(),
            "privacy.mechanism",
            "cannot correlate the noise of rounds, which ask different questions: central_gaussian, distributed_skellam, \
             distributed_discrete_gaussian and local are possible",
        );
        let is_given = privacy.clip.is_some_and(|clip| clip != Clip::WHOLE);
        checks.require(
            !is_given,
            "privacy.clip",
            "must be left out: max_rows bounds what a participant contributes to an analysis",
        );
        for (field, given) in [
            ("privacy.max_weight", privacy.max_weight.is_some()),
            ("privacy.expected_weight", privacy.expected_weight.is_some()),
        ] {
            checks.require(!given, field, "must be left out: contributions to an analysis have no weight");
        }
    }
}
