//! `[training]` of a task: local training.

use serde::{Deserialize, Serialize};

use crate::{AdaptiveMu, Budget, Fairness, Over, Precision, Schedule, Solver, Warmup, step_factor};

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
    /// Of the local optimizer, in [0, 1).
    pub momentum: f64,
    /// L2 penalty.
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
    /// The plan of one round, with factors that count rounds multiplied into the learning rate.
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

    /// Factor on the learning rate at a step of one participation, from 0, without factors that count rounds.
    #[must_use]
    pub fn step_factor(&self, step: u32) -> f64 {
        step_factor(self.schedule.as_ref(), self.warmup.as_ref(), step)
    }
}
