//! Requirements of a personalization method on the rest of the task.

use crate::problem::Checks;
use crate::{Over, PERSONAL_PREFIX, Personalization, Schedule, TaskSpec, below};

impl TaskSpec {
    /// Checks a method against the rest of the task. `learning` checks whether the patterns split the model.
    pub(super) fn check_personalization(&self, checks: &mut Checks) {
        for name in &self.metrics {
            if let Some((_, None)) = below(name) {
                checks.require_with(false, "metrics", || {
                    format!("{name:?} must end in a whole number of hundredths, 1 to 100, as in \"accuracy.below.50\"")
                });
            }
        }
        self.check_distributions(checks);
        let Some(method) = &self.personalization else { return };
        if self.analytics.is_some() {
            checks.require(false, "personalization", "must be left out: an analysis has no model");
            return;
        }
        method.check(self.training.learning_rate, checks);
        if matches!(method, Personalization::PFedMe { .. }) {
            let plan = &self.training;
            let by_steps = plan.schedule.as_ref().and_then(Schedule::over) == Some(Over::Steps)
                || plan.warmup.as_ref().is_some_and(|warmup| warmup.over == Over::Steps);
            for (field, given) in [("training.budget", plan.budget.is_some()), ("training.schedule", by_steps)] {
                checks.require(
                    !given,
                    field,
                    "counts steps of one training; personalization.method \"pfedme\" trains many times a few steps: leave it out, \
                     or let a schedule go over rounds",
                );
            }
        }
        let name = method.as_str();
        if method.parts_the_model() {
            checks.require_with(!self.model.personal.is_empty(), "model.personal", || {
                format!("must name the tensors that stay local with personalization.method = {name:?}")
            });
        } else {
            checks.require_with(self.model.personal.is_empty(), "model.personal", || {
                format!(
                    "must be left out with personalization.method = {name:?}, whose personalized model has every tensor"
                )
            });
        }
        let is_reported = self.metrics.iter().any(|name| name.starts_with(PERSONAL_PREFIX));
        checks.require(
            is_reported || method.shares_adapters() || self.privacy.is_private(),
            "metrics",
            "must name a metric of the personalized models beside the shared one's, such as \"personal_accuracy\"",
        );
    }
}
