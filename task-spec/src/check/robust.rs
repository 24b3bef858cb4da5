//! Requirements of a robust rule on the rest of the task.

use crate::problem::Checks;
use crate::{MAX_ROBUST_COHORT, MIN_SECURE_COHORT, RobustRule, RobustSpec, TaskSpec};

/// Minimum share of groups that must be free of attackers.
const CLEAN_GROUPS: f64 = 0.6;

impl RobustSpec {
    /// The largest group size at which enough groups are free of attackers; `None` if not even single participants
    /// suffice.
    fn largest_group(&self) -> Option<u32> {
        (1..=MAX_ROBUST_COHORT).rev().find(|&size| self.clean_groups(size) > CLEAN_GROUPS)
    }
}

impl TaskSpec {
    pub(super) fn check_robust(&self, checks: &mut Checks) {
        let Some(robust) = &self.aggregation.robust else { return };
        checks.require(
            robust.attackers > 0.0 && robust.attackers < 0.5,
            "aggregation.robust.attackers",
            "must be above 0 and below 0.5: no rule tolerates a majority",
        );
        checks.within_or_none(robust.norm_factor, 1.0..=1e6, "aggregation.robust.norm_factor");
        checks.require(
            robust.norm_factor.is_none() || robust.rule == RobustRule::NormFilter,
            "aggregation.robust.norm_factor",
            "is for the rule norm_filter alone: leave it out",
        );
        checks.require(
            !self.privacy.is_private(),
            "aggregation.robust",
            "and [privacy] do not go together: the noise is calibrated to a sum, and a rule releases none",
        );
        checks.require(
            self.training.fairness.is_none(),
            "training.fairness",
            "weighs participants by their loss, and under aggregation.robust all weigh the same: leave one of them out",
        );
        checks.require_with(self.rounds.select_max <= MAX_ROBUST_COHORT, "rounds.select_max", || {
            format!("is {}; under a robust rule it is at most {MAX_ROBUST_COHORT}", self.rounds.select_max)
        });
        match (self.secure_aggregation.enabled, robust.group_size) {
            (true, None) => checks.require(
                false,
                "aggregation.robust",
                "looks at single updates, which secure aggregation hides: give group_size, and it looks at sums of groups; or \
                 switch secure aggregation off (secure_aggregation.enabled = false), which lets the operator read every update",
            ),
            (true, Some(size)) => self.check_groups(robust, size, checks),
            (false, Some(_)) => checks.require(
                false,
                "aggregation.robust.group_size",
                "is for secure aggregation, which is switched off: leave it out",
            ),
            (false, None) => {}
        }
    }

    fn check_groups(&self, robust: &RobustSpec, size: u32, checks: &mut Checks) {
        let field = "aggregation.robust.group_size";
        let least = self.secure_aggregation.min_cohort.unwrap_or(MIN_SECURE_COHORT);
        checks.require_with(size >= least, field, || {
            format!(
                "is {size}; a group is a cohort of secure aggregation and needs secure_aggregation.min_cohort = {least}"
            )
        });
        let clean = robust.clean_groups(size);
        checks.require_with(clean > CLEAN_GROUPS, field, || {
            format!(
                "is {size}: with attackers = {} only {:.1} in 100 groups would be free of attackers, and above 60 must be: {}",
                robust.attackers,
                100.0 * clean,
                match robust.largest_group().filter(|largest| *largest >= least) {
                    Some(largest) => format!("make it at most {largest}"),
                    None => format!("not even groups of {least} are, so no rule over groups tolerates that many attackers"),
                }
            )
        });
    }
}
