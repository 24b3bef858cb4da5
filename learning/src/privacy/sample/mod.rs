//! Exact sampling of integers: the common part of the discrete Gaussian and the Poisson sampler.
//!
//! A draw compares one uniform real number, revealed 64 bits at a time, with the value of a known function. Floating point decides only if
//! the two differ by more than a generous error bound; otherwise the comparison uses integers of as many bits as necessary. So the output
//! has exactly the stated distribution, regardless of the platform's rounding. The time of a draw depends on the value drawn: never let an
//! adversary time single draws.

pub(crate) mod bernoulli;
pub(crate) mod fixed;
pub(crate) mod majorant;

use rand::CryptoRng;

/// Uniform on `0..bound`, exactly (Lemire 2019). `bound` is at least 1.
#[inline]
pub(crate) fn below<R: CryptoRng + ?Sized>(bound: u64, rng: &mut R) -> u64 {
    loop {
        let product = u128::from(rng.next_u64()) * u128::from(bound);
        let [low, high] = halves(product);
        // Computes the remainder only where it can matter.
        if low >= bound || low >= bound.wrapping_neg() % bound {
            return high;
        }
    }
}

/// Low and high 64 bits.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the low half is meant")]
pub(crate) const fn halves(value: u128) -> [u64; 2] {
    [value as u64, (value >> 64) as u64]
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;
    use rand_chacha::ChaCha20Rng;

    use super::*;

    #[test]
    fn below_is_uniform() {
        let mut rng = ChaCha20Rng::seed_from_u64(1);
        let mut counts = [0_u32; 6];
        for _ in 0..60_000 {
            counts[usize::try_from(below(6, &mut rng)).unwrap()] += 1;
        }
        // Standard deviation 91.
        assert!(counts.iter().all(|count| count.abs_diff(10_000) < 500), "{counts:?}");
        assert_eq!(below(1, &mut rng), 0);
        // Almost half of all words are rejected here.
        let bound = (1 << 63) + 1;
        assert!((0..1000).all(|_| below(bound, &mut rng) < bound));
    }
}
