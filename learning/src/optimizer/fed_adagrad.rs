//! FedAdagrad: accumulates the squares of all rounds' means (Reddi et al. 2021, algorithm 2).

use super::adaptive::Rule;
use super::{Moments, StepError};

/// One step with `v ← v + Δ²`.
pub(super) fn step(rule: &Rule, moments: &mut Moments, values: &mut [f32], deltas: &[f32]) -> Result<(), StepError> {
    rule.step(moments, values, deltas, |v, square| v + square)
}
