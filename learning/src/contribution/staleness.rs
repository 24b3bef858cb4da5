//! FedBuff: discounts updates that started from an older model (Nguyen et al. 2022, "Federated Learning with Buffered
//! Asynchronous Aggregation", Algorithm 1 and §5).
//!
//! The step is `Σ nᵢ cᵢ Δᵢ / Σ nᵢ` with `cᵢ` at most 1, so a stale update moves the model less. As in the paper, where
//! all `nᵢ` are 1 and the denominator is the buffer size K, the denominator does not include the `cᵢ`: a buffer of
//! stale updates gives a short step, not a full step in an outdated direction. The participant scales its own update,
//! so it is not revealed to others; metrics and weight are unchanged.

use crate::clip::{FixedClip, norm};
use crate::update::Update;

/// Clips the update to `bound`, if any, and then multiplies it by `weight`, in [0, 1]. The order matters: discounting
/// first would leave the length of a long update unchanged.
pub fn discount(update: &mut Update, bound: Option<FixedClip>, weight: f64) {
    let within = bound.map_or(1.0, |bound| bound.factor(norm(&update.delta)));
    let factor = within * weight;
    #[expect(clippy::cast_possible_truncation, reason = "one rounding to f32 is meant")]
    update.delta.iter_mut().for_each(|value| *value = (f64::from(*value) * factor) as f32);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn update(delta: &[f32]) -> Update {
        Update { delta: delta.to_vec(), examples: 7, metrics: Vec::new() }
    }

    #[test]
    fn an_old_update_is_clipped_and_then_counts_for_less() {
        let bound = FixedClip::new(5.0).ok();
        for (delta, bound, weight, expected) in [
            ([3.0, 4.0], None, 1.0, [3.0, 4.0]),
            ([3.0, 4.0], None, 0.5, [1.5, 2.0]),
            ([3.0, 4.0], bound, 0.5, [1.5, 2.0]),
            ([30.0, 40.0], bound, 0.5, [1.5, 2.0]),
            ([30.0, 40.0], bound, 1.0, [3.0, 4.0]),
        ] {
            let mut update = update(&delta);
            discount(&mut update, bound, weight);
            assert_eq!(update.delta, expected, "{delta:?} times {weight}");
            assert_eq!(update.examples, 7, "its weight stays");
        }
    }
}
