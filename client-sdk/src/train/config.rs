//! The parameters of local stochastic gradient descent.

use task_spec::{MAX_ACCUMULATE, Precision, Schedule, TrainingPlan, Warmup, step_factor};

/// Maximum number of epochs per round.
pub const MAX_EPOCHS: u32 = 10_000;
/// Maximum number of steps per round.
pub const MAX_STEPS: u32 = 10_000_000;
/// Maximum batch size.
pub const MAX_BATCH: u32 = 65_536;

/// Local stochastic gradient descent, in PyTorch's form: `v = momentum * v + g`, `w = w - learning_rate * v`, where `g`
/// is the gradient of the step's mean loss, clipped to `gradient_clip`, plus `weight_decay * w`, plus
/// `proximal_mu * (w - start)`.
#[derive(Clone, Debug, PartialEq)]
pub struct SgdConfig {
    /// Passes over the data, 1 to [`MAX_EPOCHS`]. Exactly one of this and `steps` is given.
    pub epochs: Option<u32>,
    /// Steps to take, 1 to [`MAX_STEPS`], going round the data as often as needed.
    pub steps: Option<u32>,
    /// Batch size, 1 to [`MAX_BATCH`]; an epoch's last batch may be smaller.
    pub batch_size: u32,
    /// Above 0, finite.
    pub learning_rate: f32,
    /// From 0 (off) to below 1.
    pub momentum: f32,
    /// At least 0 (off).
    pub weight_decay: f32,
    /// Weight of FedProx's pull towards the model that training began with (Li et al. 2020, equation 2), at least 0
    /// (off).
    pub proximal_mu: f32,
    /// Batches whose gradients are averaged into one step, 1 to [`MAX_ACCUMULATE`]: as one batch so many times as large, in the
    /// memory of one.
    pub accumulate: u32,
    /// L2 norm that the gradient of each step is scaled down to; above 0.
    pub gradient_clip: Option<f32>,
    /// What the learning rate is multiplied by, where it counts steps; one that counts rounds is another's affair.
    pub schedule: Option<Schedule>,
    /// How the learning rate begins, where it counts steps.
    pub warmup: Option<Warmup>,
    /// Of the passes on a GPU. The CPU computes in 32 bits whatever this says.
    pub precision: Precision,
    /// Determines the order of examples; the same seed gives the same order.
    pub seed: u64,
}

/// Why a configuration cannot train.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// Both lengths are given, or neither.
    #[error("give exactly one of `epochs` and `steps`")]
    Length,
    /// A count is out of range.
    #[error("`{name}` is {value}; it must be from 1 to {most}")]
    Count { name: &'static str, value: u32, most: u32 },
    /// A number is out of range.
    #[error("`{name}` is {value}; it must be {must}")]
    Number { name: &'static str, value: f32, must: &'static str },
}

impl SgdConfig {
    /// Plain gradient descent for one epoch: batches of 10, learning rate 0.05, seed 0.
    #[must_use]
    pub fn one_epoch() -> Self {
        Self {
            epochs: Some(1),
            steps: None,
            batch_size: 10,
            learning_rate: 0.05,
            momentum: 0.0,
            weight_decay: 0.0,
            proximal_mu: 0.0,
            accumulate: 1,
            gradient_clip: None,
            schedule: None,
            warmup: None,
            precision: Precision::F32,
            seed: 0,
        }
    }

    /// The configuration for a task's plan of one round ([`TrainingPlan::in_round`]).
    #[must_use]
    pub fn following(plan: &TrainingPlan, seed: u64) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "one rounding to f32 is meant")]
        let narrow = |value: f64| value as f32;
        Self {
            epochs: plan.steps.is_none().then_some(plan.epochs),
            steps: plan.steps,
            batch_size: plan.batch_size,
            learning_rate: narrow(plan.learning_rate),
            momentum: narrow(plan.momentum),
            weight_decay: narrow(plan.weight_decay),
            proximal_mu: narrow(plan.proximal_mu),
            accumulate: plan.accumulate,
            gradient_clip: plan.gradient_clip.map(narrow),
            schedule: plan.schedule,
            warmup: plan.warmup,
            precision: plan.precision,
            seed,
        }
    }

    /// The learning rate of a step, from 0.
    #[must_use]
    pub(super) fn rate(&self, step: u64) -> f32 {
        let step = u32::try_from(step).unwrap_or(u32::MAX);
        #[expect(clippy::cast_possible_truncation, reason = "one rounding to f32 is meant")]
        let factor = step_factor(self.schedule.as_ref(), self.warmup.as_ref(), step) as f32;
        self.learning_rate * factor
    }

    /// # Errors
    /// The first [`ConfigError`] found.
    pub fn validate(&self) -> Result<(), ConfigError> {
        match (self.epochs, self.steps) {
            (Some(epochs), None) => count("epochs", epochs, MAX_EPOCHS)?,
            (None, Some(steps)) => count("steps", steps, MAX_STEPS)?,
            _ => return Err(ConfigError::Length),
        }
        count("batch_size", self.batch_size, MAX_BATCH)?;
        count("accumulate", self.accumulate, MAX_ACCUMULATE)?;
        let finite = |value: f32| value >= 0.0 && value.is_finite();
        number("learning_rate", self.learning_rate, finite(self.learning_rate) && self.learning_rate > 0.0, "above 0")?;
        number("momentum", self.momentum, (0.0..1.0).contains(&self.momentum), "from 0 to below 1")?;
        number("weight_decay", self.weight_decay, finite(self.weight_decay), "at least 0")?;
        number("proximal_mu", self.proximal_mu, finite(self.proximal_mu), "at least 0")?;
        let clip = self.gradient_clip.unwrap_or(1.0);
        number("gradient_clip", clip, finite(clip) && clip > 0.0, "above 0")
    }
}

fn count(name: &'static str, value: u32, most: u32) -> Result<(), ConfigError> {
    if (1..=most).contains(&value) { Ok(()) } else { Err(ConfigError::Count { name, value, most }) }
}

fn number(name: &'static str, value: f32, good: bool, must: &'static str) -> Result<(), ConfigError> {
    if good { Ok(()) } else { Err(ConfigError::Number { name, value, must }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_what_cannot_train() {
        let good = SgdConfig::one_epoch();
        assert_eq!(good.validate(), Ok(()));
        let bad = [
            (SgdConfig { epochs: None, ..good.clone() }, "exactly one"),
            (SgdConfig { steps: Some(1), ..good.clone() }, "exactly one"),
            (SgdConfig { epochs: Some(0), ..good.clone() }, "epochs"),
            (SgdConfig { batch_size: 0, ..good.clone() }, "batch_size"),
            (SgdConfig { batch_size: u32::MAX, ..good.clone() }, "batch_size"),
            (SgdConfig { learning_rate: 0.0, ..good.clone() }, "learning_rate"),
            (SgdConfig { learning_rate: f32::NAN, ..good.clone() }, "learning_rate"),
            (SgdConfig { momentum: 1.0, ..good.clone() }, "momentum"),
            (SgdConfig { weight_decay: -0.1, ..good.clone() }, "weight_decay"),
            (SgdConfig { proximal_mu: f32::INFINITY, ..good.clone() }, "proximal_mu"),
            (SgdConfig { accumulate: 0, ..good.clone() }, "accumulate"),
            (SgdConfig { gradient_clip: Some(0.0), ..good.clone() }, "gradient_clip"),
        ];
        for (config, words) in bad {
            let error = config.validate().unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
