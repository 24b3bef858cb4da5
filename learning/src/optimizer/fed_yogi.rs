//! FedYogi: as FedAdam, but the change of `v` does not grow with `v`, so large squares decay slowly (Reddi et al. 2021,
//! algorithm 2; Zaheer et al. 2018).

use super::StepError;
use super::adaptive::Rule;

/// One step with `v ← v - (1 - β₂) Δ² sign(v - Δ²)`, where the sign of 0 is 0.
pub(super) fn step(
    rule: &Rule,
    beta2: f64,
    moments: &mut [Vec<f32>; 2],
    values: &mut [f32],
    deltas: &[f32],
) -> Result<(), StepError> {
    rule.step(moments, values, deltas, |v, square| {
        let change = (1.0 - beta2) * square;
        match v.total_cmp(&square) {
            std::cmp::Ordering::Less => v + change,
            std::cmp::Ordering::Equal => v,
            std::cmp::Ordering::Greater => v - change,
        }
    })
}
