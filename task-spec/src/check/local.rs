//! Rates, budgets and precision of local training.

use crate::problem::Checks;
use crate::{MAX_ACCUMULATE, Schedule, TaskSpec};

impl Schedule {
    fn check(&self, checks: &mut Checks) {
        let count = |checks: &mut Checks, name: &str, value: u32| {
            checks.require((1..=10_000_000).contains(&value), name, "must be between 1 and 10000000");
        };
        let part = |checks: &mut Checks, name: &str, value: f64| {
            checks.require(value > 0.0 && value <= 1.0, name, "must be above 0 and at most 1");
        };
        match *self {
            Self::Constant {} => {}
            Self::Step { every, factor, .. } => {
                count(checks, "training.schedule.every", every);
                part(checks, "training.schedule.factor", factor);
            }
            Self::Exponential { factor, .. } => part(checks, "training.schedule.factor", factor),
            Self::Cosine { length, floor, .. } => {
                count(checks, "training.schedule.length", length);
                part(checks, "training.schedule.floor", floor);
            }
        }
    }
}

impl TaskSpec {
    pub(super) fn check_local_training(&self, checks: &mut Checks) {
        let plan = &self.training;
        checks.require_with((1..=MAX_ACCUMULATE).contains(&plan.accumulate), "training.accumulate", || {
            format!("must be between 1 and {MAX_ACCUMULATE}")
        });
        checks.require(
            plan.gradient_clip.is_none_or(|norm| (1e-30..=1e30).contains(&norm)),
            "training.gradient_clip",
            "must be between 1e-30 and 1e30, or left out",
        );
        if let Some(schedule) = &plan.schedule {
            schedule.check(checks);
        }
        if let Some(warmup) = &plan.warmup {
            checks.require(
                (1..=10_000_000).contains(&warmup.length),
                "training.warmup.length",
                "must be between 1 and 10000000",
            );
        }
        if let Some(budget) = &plan.budget {
            checks.require(
                budget.steps.is_some() || budget.time_ms.is_some(),
                "training.budget",
                "must name steps or time_ms, or be left out",
            );
            checks.require(
                budget.steps.is_none_or(|steps| (1..=10_000_000).contains(&steps)),
                "training.budget.steps",
                "must be between 1 and 10000000, or left out",
            );
            let limit = self.rounds.collect_deadline_ms;
            checks.require_with(
                budget.time_ms.is_none_or(|time| (1..limit).contains(&time)),
                "training.budget.time_ms",
                || format!("must be at least 1 and below rounds.collect_deadline_ms = {limit}, by which the update must have come"),
            );
        }
    }
}
