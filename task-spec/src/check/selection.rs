//! Selection: ranges, and strategies that need information hidden by the task.

use crate::problem::Checks;
use crate::{Cohort, MAX_COHORT, MAX_CRITERIA, Oort, Strategy, TRAINING_LOSS, TaskSpec};

impl TaskSpec {
    pub(super) fn check_selection(&self, checks: &mut Checks) {
        match self.selection.cohort {
            Cohort::Count(count) => checks.within(count, 1..=MAX_COHORT, "selection.cohort.count"),
            Cohort::Fraction(fraction) => checks.require(
                fraction > 0.0 && fraction <= 1.0,
                "selection.cohort.fraction",
                "must be above 0 and at most 1",
            ),
        }
        checks.within(self.selection.over_selection, 0.0..=10.0, "selection.over_selection");
        self.check_on_device(checks);
        self.check_strategy(checks);
        self.check_utility(checks);
    }

    fn check_on_device(&self, checks: &mut Checks) {
        let criteria = &self.selection.on_device;
        checks.require(criteria.len() <= MAX_CRITERIA, "selection.on_device", "must be at most 16 criteria");
        checks.require(
            criteria.is_empty() || !self.privacy.is_private(),
            "selection.on_device",
            "asks devices about themselves, and epsilon does not cover what they answer: leave it out, or [privacy]; labels and \
             min_examples of [selection.require] can stay",
        );
        for (index, criterion) in criteria.iter().enumerate() {
            if let Err(problem) = criterion.check() {
                checks.require(false, &format!("selection.on_device[{index}]"), problem);
            }
        }
    }

    fn check_strategy(&self, checks: &mut Checks) {
        match &self.selection.strategy {
            Strategy::Uniform | Strategy::RoundRobin => {}
            Strategy::Stratified(stratified) => checks.require(
                (1..=256).contains(&stratified.label.len()),
                "selection.strategy.stratified.label",
                "must be the name of a label, 1 to 256 bytes",
            ),
            Strategy::PowerOfChoice(power) => {
                let smallest = self.draw(self.select_min()).cohort;
                let field = "selection.strategy.power_of_choice.candidates";
                checks.require_with((smallest..=MAX_COHORT).contains(&power.candidates), field, || {
                    format!(
                        "is {}; it must be at least the cohort, {smallest} with over-selection, or there is nothing to choose \
                         from, and at most {MAX_COHORT}",
                        power.candidates
                    )
                });
            }
            Strategy::Oort(oort) => check_oort(oort, checks),
        }
    }

    /// Losses of single participants: explicitly requested if secure aggregation hides them, and only if used.
    fn check_utility(&self, checks: &mut Checks) {
        let (strategy, asks) = (&self.selection.strategy, self.selection.report_utility);
        if !strategy.follows_the_loss() {
            checks.require_with(!asks, "selection.report_utility", || {
                format!(
                    "is true, but the strategy {} makes no use of it: leave it out, or participants give something away for \
                     nothing",
                    strategy.as_str()
                )
            });
            return;
        }
        checks.require_with(asks || !self.secure_aggregation.enabled, "selection.strategy", || {
            format!(
                "{} needs to know the loss of single participants, which secure aggregation hides: set \
                 selection.report_utility = true to ask each for a coarse one (32 levels) with its check-in, or choose uniform, \
                 round_robin or stratified",
                strategy.as_str()
            )
        });
        checks.require_with(!self.privacy.is_private(), "selection.strategy", || {
            format!(
                "{} follows a loss that each participant tells, which epsilon does not cover: choose uniform, round_robin or \
                 stratified, or leave [privacy] out",
                strategy.as_str()
            )
        });
        checks.require_with(self.metrics.iter().any(|name| name == TRAINING_LOSS), "metrics", || {
            format!("must name {TRAINING_LOSS}: the strategy {} follows it", strategy.as_str())
        });
    }
}

fn check_oort(oort: &Oort, checks: &mut Checks) {
    let above_zero = |value: f64| value > 0.0 && value <= 1.0;
    for (field, holds, problem) in [
        ("exploration", (0.0..=1.0).contains(&oort.exploration), "must be between 0 and 1"),
        ("exploration_decay", above_zero(oort.exploration_decay), "must be above 0 and at most 1"),
        (
            "exploration_min",
            (0.0..=oort.exploration).contains(&oort.exploration_min),
            "must be at least 0 and at most exploration",
        ),
        ("alpha", (0.0..=100.0).contains(&oort.alpha), "must be between 0 and 100"),
        ("pacer_window", oort.pacer_window >= 1, "must be at least 1 round"),
        ("pacer_start", (1..=100).contains(&oort.pacer_start), "must be between 1 and 100"),
        ("pacer_step", oort.pacer_step <= 100, "must be at most 100"),
        ("clip_quantile", above_zero(oort.clip_quantile), "must be above 0 and at most 1"),
        ("cutoff", above_zero(oort.cutoff), "must be above 0 and at most 1"),
    ] {
        checks.require(holds, &format!("selection.strategy.oort.{field}"), problem);
    }
}
