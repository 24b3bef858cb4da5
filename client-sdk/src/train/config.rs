//! The settings of local stochastic gradient descent: a task's plan and the order of examples.

use task_spec::{LocalOptimizer, MAX_ACCUMULATE, MAX_BATCH, MAX_EPOCHS, MAX_STEPS, TrainingPlan};

/// Local training, by stochastic gradient descent unless the plan names another optimizer, in PyTorch's form: `v = momentum * v + g`, `w = w - learning_rate * v`, where `g`
/// is the gradient of the step's mean loss, clipped to `gradient_clip`, plus `weight_decay * w`, plus
/// `proximal_mu * (w - start)` (FedProx, Li et al. 2020, equation 2).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sgd<'a> {
    /// The plan of one round ([`TrainingPlan::in_round`]); its numbers are rounded to 32 bits. Budgets and settings
    /// about more than one participant do not count here. The CPU computes in 32 bits for any precision.
    pub plan: &'a TrainingPlan,
    /// Determines the order of examples; the same seed gives the same order.
    pub seed: u64,
}

/// Why a plan cannot train.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A count is out of range.
    #[error("`{name}` is {value}; it must be from 1 to {most}")]
    Count { name: &'static str, value: u32, most: u32 },
    /// A number is out of range.
    #[error("`{name}` is {value}; it must be {must}")]
    Number { name: &'static str, value: f32, must: &'static str },
}

/// A number of a plan as training computes with it.
#[expect(clippy::cast_possible_truncation, reason = "one rounding to f32 is meant")]
pub(super) fn narrow(value: f64) -> f32 {
    value as f32
}

/// The learning rate of a step, from 0.
pub(super) fn rate(plan: &TrainingPlan, step: u64) -> f32 {
    let step = u32::try_from(step).unwrap_or(u32::MAX);
    narrow(plan.learning_rate) * narrow(plan.step_factor(step))
}

/// # Errors
/// The first [`ConfigError`] found.
pub(super) fn check(plan: &TrainingPlan) -> Result<(), ConfigError> {
    match plan.steps {
        None => count("epochs", plan.epochs, MAX_EPOCHS)?,
        Some(steps) => count("steps", steps, MAX_STEPS)?,
    }
    count("batch_size", plan.batch_size, MAX_BATCH)?;
    count("accumulate", plan.accumulate, MAX_ACCUMULATE)?;
    number("learning_rate", plan.learning_rate, |value| value > 0.0, "above 0")?;
    number("momentum", plan.momentum, |value| (0.0..1.0).contains(&value), "from 0 to below 1")?;
    number("weight_decay", plan.weight_decay, |value| value >= 0.0, "at least 0")?;
    number("proximal_mu", plan.proximal_mu, |value| value >= 0.0, "at least 0")?;
    if let LocalOptimizer::AdamW { beta1, beta2, epsilon } = plan.optimizer {
        number("beta1", beta1, |value| (0.0..1.0).contains(&value), "from 0 to below 1")?;
        number("beta2", beta2, |value| (0.0..1.0).contains(&value), "from 0 to below 1")?;
        number("epsilon", epsilon, |value| value > 0.0, "above 0")?;
        number("momentum", plan.momentum, |value| value == 0.0, "0 with AdamW")?;
    }
    number("gradient_clip", plan.gradient_clip.unwrap_or(1.0), |value| value > 0.0, "above 0")
}

fn count(name: &'static str, value: u32, most: u32) -> Result<(), ConfigError> {
    if (1..=most).contains(&value) { Ok(()) } else { Err(ConfigError::Count { name, value, most }) }
}

fn number(name: &'static str, value: f64, good: fn(f32) -> bool, must: &'static str) -> Result<(), ConfigError> {
    let value = narrow(value);
    if value.is_finite() && good(value) { Ok(()) } else { Err(ConfigError::Number { name, value, must }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_what_cannot_train() {
        let good = TrainingPlan::default();
        assert_eq!(check(&good), Ok(()));
        let bad = [
            (TrainingPlan { epochs: 0, ..good.clone() }, "epochs"),
            (TrainingPlan { epochs: 10_001, ..good.clone() }, "epochs"),
            (TrainingPlan { steps: Some(0), ..good.clone() }, "steps"),
            (TrainingPlan { batch_size: 0, ..good.clone() }, "batch_size"),
            (TrainingPlan { batch_size: u32::MAX, ..good.clone() }, "batch_size"),
            (TrainingPlan { learning_rate: 0.0, ..good.clone() }, "learning_rate"),
            // Rounded to 32 bits.
            (TrainingPlan { learning_rate: 1e-50, ..good.clone() }, "learning_rate"),
            (TrainingPlan { learning_rate: 1e50, ..good.clone() }, "learning_rate"),
            (TrainingPlan { learning_rate: f64::NAN, ..good.clone() }, "learning_rate"),
            (TrainingPlan { momentum: 1.0, ..good.clone() }, "momentum"),
            (TrainingPlan { weight_decay: -0.1, ..good.clone() }, "weight_decay"),
            (TrainingPlan { proximal_mu: f64::INFINITY, ..good.clone() }, "proximal_mu"),
            (TrainingPlan { optimizer: LocalOptimizer::adamw(), momentum: 0.9, ..good.clone() }, "momentum"),
            (
                TrainingPlan {
                    optimizer: LocalOptimizer::AdamW { beta1: 0.9, beta2: 1.0, epsilon: 1e-8 },
                    ..good.clone()
                },
                "beta2",
            ),
            (TrainingPlan { accumulate: 0, ..good.clone() }, "accumulate"),
            (TrainingPlan { gradient_clip: Some(0.0), ..good.clone() }, "gradient_clip"),
        ];
        for (plan, words) in bad {
            let error = check(&plan).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn steps_override_epochs_whatever_they_are() {
        assert_eq!(check(&TrainingPlan { epochs: 0, steps: Some(1), ..TrainingPlan::default() }), Ok(()));
    }
}
