//! FedAdagrad: accumulates the squares of all rounds' means (Reddi et al. 2021, algorithm 2).

use super::StepError;
use super::adaptive::Rule;

/// One step with `v ← v + Δ²`.
pub(super) fn step(
    rule: &Rule,
    moments: &mut [Vec<f32>; 2],
    values: &mut [f32],
    deltas: &[f32],
) -> Result<(), StepError> {
    rule.step(moments, values, deltas, |v, square| v + square)
}
