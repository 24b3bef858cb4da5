//! Rates, budgets and precision of local training.

use crate::problem::Checks;
use crate::{LocalOptimizer, MAX_ACCUMULATE, Schedule, TaskSpec, TrainingPlan};

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

impl LocalOptimizer {
    fn check(&self, plan: &TrainingPlan, checks: &mut Checks) {
        let Self::AdamW { beta1, beta2, epsilon } = *self else { return };
        let field = "training.optimizer";
        for (name, beta) in [("beta1", beta1), ("beta2", beta2)] {
            checks.require_with((0.0..1.0).contains(&beta), field, || format!("{name} must be from 0 to below 1"));
        }
        checks.require((1e-30..=1.0).contains(&epsilon), field, "epsilon must be between 1e-30 and 1");
        checks.require(plan.momentum == 0.0, "training.momentum", "is of gradient descent; AdamW has beta1 instead");
        checks.require(
            plan.solver.is_none(),
            field,
            "adamw does not go with training.solver: how far its steps go is not a sum of learning rates",
        );
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
        plan.optimizer.check(plan, checks);
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
