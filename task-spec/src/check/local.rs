//! Rates, budgets and precision of local training.

use crate::problem::Checks;
use crate::{MAX_ACCUMULATE, Schedule, TaskSpec};

impl Schedule {
    fn check(&self, checks: &mut Checks) {
        let part = |checks: &mut Checks, name: &str, value: f64| {
            checks.require(value > 0.0 && value <= 1.0, name, "must be above 0 and at most 1");
        };
        match *self {
            Self::Constant {} => {}
            Self::Step { every, factor, .. } => {
                checks.within(every, 1..=10_000_000, "training.schedule.every");
                part(checks, "training.schedule.factor", factor);
            }
            Self::Exponential { factor, .. } => part(checks, "training.schedule.factor", factor),
            Self::Cosine { length, floor, .. } => {
                checks.within(length, 1..=10_000_000, "training.schedule.length");
                part(checks, "training.schedule.floor", floor);
            }
        }
    }
}

impl TaskSpec {
    pub(super) fn check_local_training(&self, checks: &mut Checks) {
        let plan = &self.training;
        checks.within(plan.accumulate, 1..=MAX_ACCUMULATE, "training.accumulate");
        checks.require(
            plan.gradient_clip.is_none_or(|norm| (1e-30..=1e30).contains(&norm)),
            "training.gradient_clip",
            "must be between 1e-30 and 1e30, or left out",
        );
        if let Some(schedule) = &plan.schedule {
            schedule.check(checks);
        }
        if let Some(warmup) = &plan.warmup {
            checks.within(warmup.length, 1..=10_000_000, "training.warmup.length");
        }
        if let Some(budget) = &plan.budget {
            checks.require(
                budget.steps.is_some() || budget.time_ms.is_some(),
                "training.budget",
                "must name steps or time_ms, or be left out",
            );
            checks.within_or_none(budget.steps, 1..=10_000_000, "training.budget.steps");
            let limit = self.rounds.collect_deadline_ms;
            checks.require_with(
                budget.time_ms.is_none_or(|time| (1..limit).contains(&time)),
                "training.budget.time_ms",
                || format!("must be at least 1 and below rounds.collect_deadline_ms = {limit}, by which the update must have come"),
            );
        }
    }
}
