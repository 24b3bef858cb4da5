//! FedAdam: an exponential moving average of the squared means (Reddi et al. 2021, algorithm 2).

use super::adaptive::Rule;
use super::{Moments, StepError};

/// One step with `v ← β₂ v + (1 - β₂) Δ²`.
pub(super) fn step(
    rule: &Rule,
    beta2: f64,
    moments: &mut Moments,
    values: &mut [f32],
    deltas: &[f32],
) -> Result<(), StepError> {
    rule.step(moments, values, deltas, |v, square| beta2 * v + (1.0 - beta2) * square)
}
