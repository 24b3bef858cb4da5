//! The loop shared by all optimizers: each parameter is updated from its own mean and its own state.
//!
//! Arithmetic is in `f64` and each result is rounded once to `f32`, the type of model and state, so a step gives the
//! same bits on every replica.

use super::StepError;

/// Replaces each value and its `K` state variables by the result of `next`. All slices have the same length.
///
/// # Errors
/// [`StepError::NotFinite`]; the values are then unchanged.
pub(super) fn update<const K: usize>(
    values: &mut [f32],
    mut memory: [&mut [f32]; K],
    deltas: &[f32],
    next: impl Fn(f64, [f64; K], f64) -> (f64, [f64; K]),
) -> Result<(), StepError> {
    let at = |value: f32, memory: &[&mut [f32]; K], index: usize| {
        let remembered = std::array::from_fn(|k| f64::from(memory[k][index]));
        let (value, remembered) = next(f64::from(value), remembered, f64::from(deltas[index]));
        (round(value), remembered.map(round))
    };
    // All checks come before any change, so that an error leaves the model intact.
    for (index, &value) in values.iter().enumerate() {
        let (value, remembered) = at(value, &memory, index);
        if !value.is_finite() || !remembered.iter().all(|number| number.is_finite()) {
            return Err(StepError::NotFinite(index));
        }
    }
    for (index, value) in values.iter_mut().enumerate() {
        let remembered;
        (*value, remembered) = at(*value, &memory, index);
        for (memory, number) in memory.iter_mut().zip(remembered) {
            memory[index] = number;
        }
    }
    Ok(())
}

#[expect(clippy::cast_possible_truncation, reason = "one rounding to f32 is meant")]
fn round(value: f64) -> f32 {
    value as f32
}
