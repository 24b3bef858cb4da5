//! The common part of FedAdagrad, FedAdam and FedYogi: Reddi et al. 2021, "Adaptive federated optimization", algorithm
//! 2.
//!
//! `m ← β₁ m + (1 - β₁) Δ`, `v ←` by the optimizer, `x ← x + η m / (√v + τ)`. As in the paper there is **no bias
//! correction**: `m` starts at 0 and `v` at `τ²`, the smallest value that the paper allows, so first steps are short
//! because `m` is small, not long because `v` is.

use super::{StepError, elementwise};

/// Hyperparameters of all three.
pub(super) struct Rule {
    pub(super) learning_rate: f64,
    pub(super) beta1: f64,
    pub(super) tau: f64,
}

impl Rule {
    /// `m` and `v` before the first round.
    #[expect(clippy::cast_possible_truncation, reason = "one rounding to f32 is meant")]
    pub(super) fn start(&self, parameters: usize) -> [Vec<f32>; 2] {
        [vec![0.0; parameters], vec![(self.tau * self.tau) as f32; parameters]]
    }

    /// One step; `next(v, Δ²)` is the next `v`.
    pub(super) fn step(
        &self,
        [first, second]: &mut [Vec<f32>; 2],
        values: &mut [f32],
        deltas: &[f32],
        next: impl Fn(f64, f64) -> f64,
    ) -> Result<(), StepError> {
        let Self { learning_rate, beta1, tau } = *self;
        elementwise::update(values, [first, second], deltas, |value, [m, v], delta| {
            let m = beta1 * m + (1.0 - beta1) * delta;
            let v = next(v, delta * delta);
            (value + learning_rate * m / (v.sqrt() + tau), [m, v])
        })
    }
}
