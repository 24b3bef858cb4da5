//! FedAdam: an exponential moving average of the squared means (Reddi et al. 2021, algorithm 2).

use super::StepError;
use super::adaptive::Rule;

/// One step with `v ← β₂ v + (1 - β₂) Δ²`.
pub(super) fn step(
    rule: &Rule,
    beta2: f64,
    moments: &mut [Vec<f32>; 2],
    values: &mut [f32],
    deltas: &[f32],
) -> Result<(), StepError> {
    rule.step(moments, values, deltas, |v, square| beta2 * v + (1.0 - beta2) * square)
}
