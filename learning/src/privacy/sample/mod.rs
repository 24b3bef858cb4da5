//! Exact sampling of integers: what the discrete Gaussian and the Poisson distribution have in common.
//!
//! A draw is decided by comparing one uniform real number, revealed 64 bits at a time, with the value of a known function.
//! Floating point is allowed to decide only when the comparison is further apart than a bound on its error that leaves
//! orders of magnitude to spare; what it cannot decide is settled in integers of as many bits as it takes. So what comes
//! out has the distribution that is written down, to the last bit, whatever the platform's rounding. How long a draw
//! takes depends on the value drawn: never let an adversary time single draws.

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
        // The remainder is computed only where it can matter.
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
        // Almost half of all words are refused here.
        let bound = (1 << 63) + 1;
        assert!((0..1000).all(|_| below(bound, &mut rng) < bound));
    }
}
