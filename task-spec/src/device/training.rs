//! `[training]` of a task: local training.

use serde::{Deserialize, Serialize};

use crate::{AdaptiveMu, Budget, Fairness, LocalOptimizer, Over, Precision, Schedule, Solver, Warmup, step_factor};

/// Maximum number of local epochs per round.
pub const MAX_EPOCHS: u32 = 10_000;
/// Maximum number of local steps per round.
pub const MAX_STEPS: u32 = 10_000_000;
/// Maximum mini-batch size, in examples.
pub const MAX_BATCH: u32 = 65_536;

/// The local training plan. The SDK's own trainer follows it; an app's trainer receives it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TrainingPlan {
    /// Passes over the local data; ignored if `steps` is given.
    pub epochs: u32,
    /// Number of steps; overrides `epochs`.
    pub steps: Option<u32>,
    /// Mini-batch size, in examples.
    pub batch_size: u32,
    /// Of the local optimizer.
    pub learning_rate: f64,
    /// Of gradient descent, in [0, 1); 0 with another optimizer.
    pub momentum: f64,
    /// L2 penalty; with `AdamW` apart from the gradient.
    pub weight_decay: f64,
    /// FedProx μ: strength of the proximal term towards the received model.
    pub proximal_mu: f64,
    /// Weights updates by loss. Default: by number of examples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fairness: Option<Fairness>,
    /// Correction for unequal steps on different data. Default: none (FedAvg).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub solver: Option<Solver>,
    /// Adapts `proximal_mu` from round to round. Participants receive the μ of the round.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adaptive_mu: Option<AdaptiveMu>,
    /// The rule of a step. Default: stochastic gradient descent.
    #[serde(skip_serializing_if = "LocalOptimizer::is_sgd")]
    pub optimizer: LocalOptimizer,
    /// Number of mini-batches whose gradients are averaged into one step, 1 to 1024.
    #[serde(skip_serializing_if = "is_one")]
    pub accumulate: u32,
    /// L2 norm to which the gradient of each step is clipped, before other terms are added.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gradient_clip: Option<f64>,
    /// Change of the learning rate over time. Default: constant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<Schedule>,
    /// Initial rise of the learning rate. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warmup: Option<Warmup>,
    /// Limits at which a device stops early. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// Number format of passes, if the device supports it.
    #[serde(skip_serializing_if = "Precision::is_full")]
    pub precision: Precision,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_one(value: &u32) -> bool {
    *value == 1
}

impl Default for TrainingPlan {
    fn default() -> Self {
        Self {
            epochs: 1,
            steps: None,
            batch_size: 32,
            learning_rate: 0.1,
            momentum: 0.0,
            weight_decay: 0.0,
            proximal_mu: 0.0,
            fairness: None,
            solver: None,
            adaptive_mu: None,
            optimizer: LocalOptimizer::default(),
            accumulate: 1,
            gradient_clip: None,
            schedule: None,
            warmup: None,
            budget: None,
            precision: Precision::F32,
        }
    }
}

impl TrainingPlan {
    /// The solver with defaults from the rest of the plan.
    #[must_use]
    pub fn solver(&self) -> Option<Solver> {
        let known = |steps: Option<u32>| steps.or(self.steps);
        Some(match self.solver? {
            Solver::FedNova { steps } => Solver::FedNova { steps: known(steps) },
            Solver::Scaffold { population, steps } => Solver::Scaffold { population, steps: known(steps) },
        })
    }
}

impl TrainingPlan {
    /// Fills in a solver's open settings for this number of participants with at most `most_examples` examples each: its steps are those of
    /// the largest plan, and its population is all participants.
    pub fn complete(&mut self, participants: u32, most_examples: usize) {
        let batch = self.batch_size.saturating_mul(self.accumulate).max(1);
        let examples = u32::try_from(most_examples).unwrap_or(u32::MAX);
        let largest = self.steps.unwrap_or_else(|| self.epochs.saturating_mul(examples.div_ceil(batch))).max(1);
        match &mut self.solver {
            None => {}
            Some(Solver::FedNova { steps }) => *steps = steps.or(Some(largest)),
            Some(Solver::Scaffold { population, steps }) => {
                *population = if *population == 0 { participants } else { *population };
                *steps = steps.or(Some(largest));
            }
        }
    }

    /// Maximum weight of an update whose examples count up to `most`: 1 with a control variate, which weighs all participants equally.
    #[must_use]
    pub fn weight_cap(&self, most: u32) -> u32 {
        if self.solver.is_some_and(|solver| solver.has_control()) { 1 } else { most }
    }

    /// The plan of one round: factors that depend on the round are multiplied into the learning rate.
    #[must_use]
    pub fn in_round(&self, round: u32) -> Self {
        let t = round.saturating_sub(1);
        let mut plan = self.clone();
        if let Some(schedule) = plan.schedule.take_if(|schedule| schedule.over() != Some(Over::Steps)) {
            plan.learning_rate *= schedule.factor(t);
        }
        if let Some(warmup) = plan.warmup.take_if(|warmup| warmup.over == Over::Rounds) {
            plan.learning_rate *= warmup.factor(t);
        }
        plan
    }

    /// Factor on the learning rate at a step of one participation, from 0, without factors that depend on the round.
    #[must_use]
    pub fn step_factor(&self, step: u32) -> f64 {
        step_factor(self.schedule.as_ref(), self.warmup.as_ref(), step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_solver_does_not_say_follows_from_the_participants() {
        let complete = |solver: &str| {
            let mut plan =
                TrainingPlan { solver: Some(serde_json::from_str(solver).unwrap()), ..TrainingPlan::default() };
            plan.complete(20, 95);
            plan
        };
        // One epoch of 95 examples in batches of 32.
        let nova = complete(r#"{"name":"fed_nova"}"#);
        assert_eq!((nova.solver, nova.weight_cap(95)), (Some(Solver::FedNova { steps: Some(3) }), 95));
        let scaffold = complete(r#"{"name":"scaffold","population":0,"steps":7}"#);
        let everybody = Solver::Scaffold { population: 20, steps: Some(7) };
        assert_eq!((scaffold.solver, scaffold.weight_cap(95)), (Some(everybody), 1));
        let said = complete(r#"{"name":"scaffold","population":9}"#).solver;
        assert_eq!(said, Some(Solver::Scaffold { population: 9, steps: Some(3) }));
        let mut plain = TrainingPlan::default();
        plain.complete(20, 95);
        assert_eq!(plain, TrainingPlan::default());
    }
}
