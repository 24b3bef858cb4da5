//! FedBuff: what an update counts for that started from an older model (Nguyen et al. 2022, "Federated Learning with Buffered
//! Asynchronous Aggregation", Algorithm 1 and §5).
//!
//! The step is `Σ nᵢ cᵢ Δᵢ / Σ nᵢ` with `cᵢ` at most 1: an old update moves the model less. As in the paper, where all `nᵢ` are 1
//! and the denominator is the size of the buffer K, the denominator does not shrink with the `cᵢ`, so a buffer of old
//! updates is a short step, not a full one in an old direction. The participant scales its own update, so that nobody else
//! has to see it; metrics and the weight stay as they are.

use crate::clip::{FixedClip, norm};
use crate::update::Update;

/// Clips the update to `bound`, if there is one, and then multiplies it by `weight`, in [0, 1]. In this order, or a long update
/// would count as much as before however old it is; the length is at most the bound either way.
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
