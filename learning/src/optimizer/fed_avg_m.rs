//! FedAvgM: momentum over the rounds' means (Hsu, Qi, Brown 2019, "Measuring the effects of non-identical data
//! distribution", §4).
//!
//! `u ← β u + Δ`, `x ← x + η u`. The velocity is not scaled by `1 - β`: after many rounds in one direction the step
//! approaches `η / (1 - β)` times the mean.

use super::{StepError, elementwise};

/// One step; the velocity starts at 0.
pub(super) fn step(
    learning_rate: f64,
    momentum: f64,
    velocity: &mut [f32],
    values: &mut [f32],
    deltas: &[f32],
) -> Result<(), StepError> {
    elementwise::update(values, [velocity], deltas, |value, [velocity], delta| {
        let velocity = momentum * velocity + delta;
        (value + learning_rate * velocity, [velocity])
    })
}
