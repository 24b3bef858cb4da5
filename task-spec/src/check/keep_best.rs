//! Requirements of the best version's metric on the rest of the task.

use crate::problem::Checks;
use crate::{MAX_STOP_AFTER, PERSONAL_PREFIX, TRAINING_LOSS, TaskSpec};

impl TaskSpec {
    pub(super) fn check_keep_best(&self, checks: &mut Checks) {
        let rounds = &self.rounds;
        checks.within_or_none(rounds.stop_after, 1..=MAX_STOP_AFTER, "rounds.stop_after");
        let Some(best) = &rounds.keep_best else {
            checks.require(
                rounds.stop_after.is_none(),
                "rounds.stop_after",
                "needs the metric by which a round is an improvement: keep_best = { metric = \"accuracy\" }",
            );
            return;
        };
        let field = "rounds.keep_best.metric";
        checks.require_with(self.metrics.contains(&best.metric), field, || {
            format!("is {:?}, which is none of the task's metrics: {}", best.metric, self.metrics.join(", "))
        });
        checks.require_with(best.metric != TRAINING_LOSS && !best.metric.starts_with(PERSONAL_PREFIX), field, || {
            format!(
                "is {:?}, which no participant measures on the version that it received: choose another one, such as \"accuracy\", or \
                 \"loss\" with better = \"lower\"",
                best.metric
            )
        });
        checks.require(
            !self.privacy.is_private(),
            "rounds.keep_best",
            "and [privacy] do not go together: no metrics travel where a privacy mechanism is at work",
        );
        checks.require(
            self.analytics.is_none(),
            "rounds.keep_best",
            "is for tasks that train a model: an analysis measures none",
        );
    }
}
