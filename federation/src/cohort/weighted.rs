//! Weighted sampling without replacement.

use rand::{Rng, RngExt as _};

/// Draws `count` different positions of `weights`, or all: each with a probability proportional to its weight among the remaining ones
/// (Efraimidis and Spirakis 2006, algorithm A, as exponential races). Weights are finite and not negative; positions of weight zero are
/// drawn last.
pub(super) fn sample(weights: &[f64], count: usize, rng: &mut dyn Rng) -> Vec<usize> {
    let mut races: Vec<_> = weights
        .iter()
        .enumerate()
        .map(|(position, &weight)| {
            // 1 - u lies in (0, 1], so the logarithm is finite.
            let arrival = -(1.0 - rng.random::<f64>()).ln();
            (if weight > 0.0 { arrival / weight } else { f64::INFINITY }, arrival, position)
        })
        .collect();
    // The arrival time breaks ties between weights of zero.
    races.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    races.iter().take(count).map(|&(_, _, position)| position).collect()
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;
    use rand_chacha::ChaCha20Rng;

    use super::*;

    #[test]
    fn positions_are_drawn_in_proportion_to_their_weights() {
        let mut first = [0_u32; 4];
        let mut rng = ChaCha20Rng::seed_from_u64(1);
        for _ in 0..4_000 {
            first[sample(&[1.0, 2.0, 5.0, 0.0], 1, &mut rng)[0]] += 1;
        }
        // Binomial(4000, p): six deviations are below 190.
        for (count, expected) in first.into_iter().zip([500_u32, 1000, 2500, 0]) {
            assert!(count.abs_diff(expected) < 190, "{first:?}");
        }
    }

    #[test]
    fn zero_weights_come_last_and_in_no_order_of_their_own() {
        let mut lasts = [0_u32; 3];
        let mut rng = ChaCha20Rng::seed_from_u64(2);
        for _ in 0..300 {
            let drawn = sample(&[0.0, 3.0, 0.0], 3, &mut rng);
            assert_eq!((drawn[0], drawn.len()), (1, 3));
            lasts[drawn[2]] += 1;
        }
        assert!(lasts[0] > 90 && lasts[2] > 90, "{lasts:?}");
    }
}
