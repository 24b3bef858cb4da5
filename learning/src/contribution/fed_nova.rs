//! FedNova: corrects the bias towards participants that take more local steps (Wang et al. 2020, "Tackling the objective inconsistency
//! problem in heterogeneous federated optimization", §4).
//!
//! The step is `x + τ_eff Σ pᵢ δᵢ / aᵢ` with `τ_eff = Σ pᵢ aᵢ`, where `aᵢ` (the paper's `‖aᵢ‖₁`) is the distance that the local solver
//! covers along a constant unit gradient: the number of steps for plain SGD, more with momentum, less with a proximal term.
//!
//! Updates keep their size thanks to a reference fixed by the task, the `a` of a full plan: a participant sends `(a_ref / aᵢ) δᵢ` and, as a
//! metric with its weight as count, `aᵢ / a_ref`. Both are means weighted by `pᵢ` in the same sum, and their product is the paper's step. A
//! participant that completes the full plan sends the same update as without FedNova; if all do, the step equals FedAvg's.

use crate::metrics::MetricValue;
use crate::quantize::{MAX_METRIC_COUNT, MeanUpdate, QuantizationParams};
use crate::update::Update;

/// Upper bound on `aᵢ / a_ref`, and so on the influence of participants' claims on a mean.
pub const MAX_RATIO: f64 = 64.0;
/// Maximum number of local steps.
pub const MAX_STEPS: u32 = 1 << 24;

/// Reasons steps cannot be normalized, or an update cannot come from them.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FedNovaError {
    /// The number of steps is 0 or too large.
    #[error("FedNova needs 1 to {MAX_STEPS} local steps, not {0}")]
    Steps(u32),
    /// The local solver does not converge.
    #[error(
        "FedNova needs a momentum and a learning rate times mu of at least 0 and below 1, not {momentum} and {proximal}"
    )]
    Solver {
        momentum: f64,
        /// Learning rate times μ.
        proximal: f64,
    },
    /// The participant took far more steps than the reference.
    #[error(
        "{ratio:.1} times the steps of the task's plan were taken; at most {MAX_RATIO} times are possible; raise the task's `steps`"
    )]
    Ratio {
        /// `aᵢ / a_ref`.
        ratio: f64,
    },
    /// A metric's count cannot hold this weight.
    #[error("FedNova needs max_weight of at most {MAX_METRIC_COUNT}, not {0}")]
    MaxWeight(u32),
    /// The mean lacks a plausible ratio.
    #[error("the mean carries no number of steps, or one that its participants cannot have taken")]
    NotNormalized,
}

/// Distance that SGD covers along a constant gradient of 1 in this many steps with learning rate 1: the paper's `‖a‖₁`,
/// for momentum ρ and a proximal term whose `proximal` is the learning rate times μ.
///
/// # Errors
/// [`FedNovaError::Steps`] or [`FedNovaError::Solver`].
pub fn reach(steps: u32, momentum: f64, proximal: f64) -> Result<f64, FedNovaError> {
    if !(1..=MAX_STEPS).contains(&steps) {
        return Err(FedNovaError::Steps(steps));
    }
    if !(0.0..1.0).contains(&momentum) || !(0.0..1.0).contains(&proximal) {
        return Err(FedNovaError::Solver { momentum, proximal });
    }
    let mut reach = Reach::new(momentum, proximal);
    (0..steps).for_each(|_| reach.step(1.0));
    let distance = reach.distance();
    // If both are large, the local model oscillates around its anchor.
    if distance > 0.0 { Ok(distance) } else { Err(FedNovaError::Solver { momentum, proximal }) }
}

/// Distance covered by a local solver along a constant gradient of 1, step by step: [`reach`] for changing learning rates.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reach {
    momentum: f64,
    mu: f64,
    velocity: f64,
    distance: f64,
}

impl Reach {
    /// Starts at 0, for a solver with this momentum and a proximal term μ towards its start.
    #[must_use]
    pub fn new(momentum: f64, mu: f64) -> Self {
        Self { momentum, mu, velocity: 0.0, distance: 0.0 }
    }

    /// Takes one step with this learning rate.
    pub fn step(&mut self, rate: f64) {
        self.velocity = self.momentum * self.velocity + (1.0 - self.mu * self.distance);
        self.distance += rate * self.velocity;
    }

    /// Its state between two steps, for [`Self::restore`].
    #[must_use]
    pub fn state(&self) -> [f64; 2] {
        [self.velocity, self.distance]
    }

    /// Goes on from a state of the same solver.
    pub fn restore(&mut self, [velocity, distance]: [f64; 2]) {
        (self.velocity, self.distance) = (velocity, distance);
    }

    /// The distance after all steps so far.
    #[must_use]
    pub fn distance(&self) -> f64 {
        self.distance
    }
}

/// Both halves of the rule, for one task.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FedNova {
    reference: f64,
    max_weight: u32,
}

impl FedNova {
    /// For a reference from [`reach`], the same on every device. The codec must have one metric more than the task.
    ///
    /// # Errors
    /// [`FedNovaError::MaxWeight`], or [`FedNovaError::Ratio`] for a reference that is not above 0.
    pub fn new(reference: f64, params: &QuantizationParams) -> Result<Self, FedNovaError> {
        if u64::from(params.max_weight) > MAX_METRIC_COUNT {
            return Err(FedNovaError::MaxWeight(params.max_weight));
        }
        if !(reference.is_finite() && reference > 0.0) {
            return Err(FedNovaError::Ratio { ratio: reference });
        }
        Ok(Self { reference, max_weight: params.max_weight })
    }

    /// The participant's half: scales the update as if the full plan had been done, and appends the ratio as a metric.
    ///
    /// # Errors
    /// [`FedNovaError::Ratio`].
    pub fn normalize(&self, own: f64, mut update: Update) -> Result<Update, FedNovaError> {
        let ratio = own / self.reference;
        if !(ratio > 0.0 && ratio <= MAX_RATIO) {
            return Err(FedNovaError::Ratio { ratio });
        }
        scale(&mut update.delta, 1.0 / ratio);
        let count = update.examples.min(self.max_weight.into());
        update.metrics.push(MetricValue { value: ratio, count });
        Ok(update)
    }

    /// The coordinator's half: removes the ratio metric, scales the mean by it, and returns `τ_eff` over the reference.
    /// The metric's count must be the update's weight and its value at most [`MAX_RATIO`]; any other sum was not made
    /// by this rule.
    ///
    /// # Errors
    /// [`FedNovaError::NotNormalized`]; the mean is then unchanged.
    pub fn scale(mean: &mut MeanUpdate) -> Result<f64, FedNovaError> {
        let ratio = Self::take_ratio(&mut mean.metrics, mean.weight)?;
        scale(&mut mean.delta, ratio);
        Ok(ratio)
    }

    /// Removes the ratio metric from those of a mean of this weight, and returns the factor applied to values by [`scale`].
    ///
    /// # Errors
    /// [`FedNovaError::NotNormalized`]; the metrics are then unchanged.
    pub fn take_ratio(metrics: &mut Vec<MetricValue>, weight: u64) -> Result<f64, FedNovaError> {
        let told = metrics.last().filter(|metric| metric.count == weight);
        let ratio = told.and_then(|metric| metric.measured()).filter(|ratio| *ratio > 0.0 && *ratio <= MAX_RATIO);
        let ratio = ratio.ok_or(FedNovaError::NotNormalized)?;
        metrics.pop();
        Ok(ratio)
    }
}

/// Multiplies values, or a slice of them, by a ratio, each rounded once.
pub fn scale(values: &mut [f32], by: f64) {
    #[expect(clippy::cast_possible_truncation, reason = "one rounding to f32 is meant")]
    values.iter_mut().for_each(|value| *value = (f64::from(*value) * by) as f32);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(max_weight: u32) -> QuantizationParams {
        QuantizationParams {
            parameters: 1,
            modulus_bits: 32,
            clip_range: 1.0,
            clip_norm: None,
            max_weight,
            max_cohort: 2,
            metrics: 1,
        }
    }

    #[test]
    fn a_full_plan_is_sent_as_it_is() {
        let rule = FedNova::new(reach(20, 0.9, 0.01).unwrap(), &params(100)).unwrap();
        let update = Update { delta: vec![0.5], examples: 300, metrics: vec![] };
        let sent = rule.normalize(reach(20, 0.9, 0.01).unwrap(), update.clone()).unwrap();
        assert_eq!(sent.delta, update.delta);
        assert_eq!(sent.metrics, [MetricValue { value: 1.0, count: 100 }]);
        let mut mean = MeanUpdate { delta: sent.delta, weight: 100, participants: 1, metrics: sent.metrics };
        assert_eq!(FedNova::scale(&mut mean), Ok(1.0));
        assert_eq!((mean.delta.as_slice(), mean.metrics.len()), ([0.5].as_slice(), 0));
        assert_eq!(FedNova::scale(&mut mean), Err(FedNovaError::NotNormalized));
        // Invalid claims: another count than the update's weight, or a ratio above the maximum.
        for (value, count) in [(1.0, 99), (64.5, 100), (0.0, 100), (-1.0, 100)] {
            mean.metrics = vec![MetricValue { value, count }];
            assert_eq!(FedNova::scale(&mut mean), Err(FedNovaError::NotNormalized), "{value} {count}");
        }
        assert_eq!(mean.delta, [0.5]);
    }

    #[test]
    fn refuses_steps_that_cannot_be_normalized() {
        assert_eq!(reach(0, 0.0, 0.0), Err(FedNovaError::Steps(0)));
        assert_eq!(reach(MAX_STEPS + 1, 0.0, 0.0), Err(FedNovaError::Steps(MAX_STEPS + 1)));
        for (momentum, proximal) in [(1.0, 0.0), (0.0, 1.0), (-0.1, 0.0), (f64::NAN, 0.0)] {
            assert!(matches!(reach(3, momentum, proximal), Err(FedNovaError::Solver { .. })));
        }
        assert_eq!(FedNova::new(1.0, &params((1 << 20) + 1)), Err(FedNovaError::MaxWeight((1 << 20) + 1)));
        assert!(FedNova::new(0.0, &params(1)).is_err());
        let rule = FedNova::new(1.0, &params(1)).unwrap();
        let update = Update { delta: vec![0.5], examples: 1, metrics: vec![] };
        assert_eq!(rule.normalize(1025.0, update), Err(FedNovaError::Ratio { ratio: 1025.0 }));
    }
}
