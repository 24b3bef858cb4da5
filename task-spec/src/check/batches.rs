//! Fixed batches: whole numbers of them in every cohort and group, drawn as a whole.

use crate::problem::Checks;
use crate::{Cohort, MAX_SECURE_COHORT, MIN_SECURE_COHORT, Strategy, TaskSpec};

const FIELD: &str = "secure_aggregation.batch_size";

impl TaskSpec {
    pub(super) fn check_batches(&self, checks: &mut Checks) {
        let Some(size) = self.secure_aggregation.batch_size else { return };
        checks.require_with((MIN_SECURE_COHORT..=MAX_SECURE_COHORT / 2).contains(&size), FIELD, || {
            format!("is {size}; it must be between {MIN_SECURE_COHORT} and {}", MAX_SECURE_COHORT / 2)
        });
        if size == 0 {
            return;
        }
        let pool = size.saturating_mul(2);
        checks.require_with(self.select_min() >= pool, FIELD, || {
            format!(
                "is {size}, but a cohort may have {} participants: batches are drawn among at least two of them, so the cohort \
                 and rounds.select_min must be at least {pool}",
                self.select_min()
            )
        });
        if let Cohort::Count(count) = self.selection.cohort {
            checks.require_with(count.is_multiple_of(size), "selection.cohort.count", || {
                let (below, above) = (count - count % size, count - count % size + size);
                format!("is {count}, but cohorts consist of whole batches of {size}: choose {below} or {above}")
            });
        }
        if let Some(group) = self.group_size() {
            checks.require_with(group.is_multiple_of(size), "aggregation.robust.group_size", || {
                format!("is {group}, but groups consist of whole batches of {size}: choose a multiple")
            });
        }
        checks.require_with(matches!(self.selection.strategy, Strategy::Uniform), "selection.strategy", || {
            let strategy = self.selection.strategy.as_str();
            format!("is {strategy}, which chooses participants, but whole batches are drawn: choose uniform")
        });
        checks.require(
            self.privacy.sampling.is_none() || !self.privacy.is_private(),
            "privacy.sampling",
            "samples participants one by one, but whole batches are drawn: leave out privacy.sampling or \
             secure_aggregation.batch_size",
        );
        let require = &self.selection.require;
        checks.require(
            require.min_gap_ms == 0 && require.min_gap_rounds == 0 && require.max_participations == 0,
            "selection.require",
            "limits how often each participant takes part, but whole batches are drawn: leave out min_gap_ms, min_gap_rounds and \
             max_participations",
        );
    }
}
