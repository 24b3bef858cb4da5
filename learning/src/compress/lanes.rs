//! Packs several small integers into a word, such that their sums over a full cohort do not overlap and no bit is
//! wasted.
//!
//! With `b` bits a coordinate in `±c` becomes a digit of `0..=q`, `q = 2^b - 1`. The digits of a cohort of `n` add up
//! to at most `n q`, so in base `R = n q + 1` no digit of a sum carries into the next. A word holds `k` digits minus a
//! constant that centres it. Among all `k` and moduli 2^16 to 2^32 with headroom, the pair with the fewest bits per
//! coordinate is used. The modulus only bounds the word: that of a single coordinate may be as small as `log2 R`.

use rand::Rng;

use super::CodecError;
use crate::quantize::{lift, to_word};

/// How coordinates are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lanes {
    /// `q`.
    intervals: u32,
    /// `R`.
    base: u64,
    /// `k`.
    per_word: u32,
    /// Offset subtracted from every participant's word.
    middle: i64,
    /// Largest word of one participant before the subtraction.
    largest: i64,
    modulus_bits: u8,
}

/// Bits that the modulus needs beyond the cohort's, for the limbs of weight and metrics.
const TAIL_BITS: u32 = 6;

impl Lanes {
    pub(super) fn new(bits: u8, max_cohort: u32) -> Result<Self, CodecError> {
        if !(1..=16).contains(&bits) {
            return Err(CodecError::Bits(bits));
        }
        Self::best(bits, max_cohort).ok_or_else(|| {
            let best_bits = (1..bits).rev().find(|&fewer| Self::best(fewer, max_cohort).is_some()).unwrap_or(0);
            CodecError::NoHeadroom { bits, max_cohort, best_bits }
        })
    }

    fn best(bits: u8, max_cohort: u32) -> Option<Self> {
        let intervals = (1_u32 << bits) - 1;
        let cohort = u64::from(max_cohort);
        let base = cohort * u64::from(intervals) + 1;
        let least = 16.max(TAIL_BITS + max_cohort.next_power_of_two().trailing_zeros());
        let mut best: Option<Self> = None;
        let mut all_ones = 0_u64;
        for per_word in 1..=32 {
            // 1 + R + R^2 + ...
            all_ones = all_ones * base + 1;
            // Below 2^33 * 2^32 here, and at most 2^32 where one more digit is tried.
            let largest = all_ones * u64::from(intervals);
            let bound = largest.div_ceil(2);
            let leaves_headroom = |&b: &u8| u32::from(b) >= least && cohort * bound < 1 << (b - 1);
            let Some(modulus_bits) = (16..=32).find(leaves_headroom).filter(|_| largest < 1 << 32) else { break };
            let bits_each = |lanes: &Self| u32::from(lanes.modulus_bits) * 1000 / lanes.per_word;
            let (largest, middle) = (largest.cast_signed(), (largest / 2).cast_signed());
            let lanes = Self { intervals, base, per_word, middle, largest, modulus_bits };
            if best.as_ref().is_none_or(|best| bits_each(&lanes) < bits_each(best)) {
                best = Some(lanes);
            }
        }
        best
    }

    pub(super) fn modulus_bits(&self) -> u8 {
        self.modulus_bits
    }

    /// Largest magnitude of one participant's word.
    pub(super) fn bound(&self) -> u64 {
        (self.largest - self.middle).unsigned_abs()
    }

    pub(super) fn per_word(&self) -> usize {
        self.per_word as usize
    }

    /// Number of words for this many coordinates.
    pub(super) fn words(&self, coordinates: usize) -> usize {
        coordinates.div_ceil(self.per_word())
    }

    /// Rounds `share` (above 0, at most 1) times each coordinate stochastically and replaces the coordinate by its
    /// decoded value. Draws four bytes per coordinate.
    pub(super) fn encode(
        &self,
        coordinates: &mut [f64],
        range: f64,
        share: f64,
        words: &mut [u32],
        rng: &mut impl Rng,
    ) {
        let mask = u32::MAX >> (32 - u32::from(self.modulus_bits));
        let half = f64::from(self.intervals) / 2.0;
        let (scale, unscale) = (share * half / range, range / (half * share));
        let limit = share * half;
        let mut noise = [0_u8; 4 * 32];
        for (run, word) in coordinates.chunks_mut(self.per_word()).zip(words) {
            let noise = &mut noise[..4 * run.len()];
            rng.fill_bytes(noise);
            let mut packed = 0_i64;
            for (value, &noise) in run.iter_mut().zip(noise.as_chunks::<4>().0).rev() {
                let exact = ((*value * scale).clamp(-limit, limit) + half) * 4_294_967_296.0;
                #[expect(clippy::cast_possible_truncation, reason = "below 2^48; digits past 2^-32 are dropped")]
                let digit = ((exact as i64) + i64::from(u32::from_le_bytes(noise))) >> 32;
                packed = packed * self.base.cast_signed() + digit;
                *value = (digit as f64 - half) * unscale;
            }
            *word = to_word(packed - self.middle, mask);
        }
    }

    /// Recovers the sums of the coordinates, weighted by each participant's share. The error is the index of the first
    /// word that these participants cannot have summed to.
    pub(super) fn decode(
        &self,
        words: &[u32],
        participants: u32,
        coordinates: usize,
        range: f64,
    ) -> Result<Vec<f64>, usize> {
        let most = i64::from(participants) * i64::from(self.intervals);
        let half = f64::from(self.intervals) / 2.0;
        let (middle, unscale) = (f64::from(participants) * half, range / half);
        let mut values = Vec::with_capacity(coordinates);
        for (index, &word) in words.iter().enumerate() {
            let mut packed = lift(word, self.modulus_bits) + i64::from(participants) * self.middle;
            for _ in 0..self.per_word.min(u32::try_from(coordinates - values.len()).unwrap_or(u32::MAX)) {
                let digit = packed.rem_euclid(self.base.cast_signed());
                packed = packed.div_euclid(self.base.cast_signed());
                if digit > most {
                    return Err(index);
                }
                values.push((digit as f64 - middle) * unscale);
            }
            if packed != 0 {
                return Err(index);
            }
        }
        Ok(values)
    }

    /// Whether one participant can have sent this word when this many coordinates are left.
    pub(super) fn is_of_one(&self, word: u32, left: usize) -> bool {
        self.decode(&[word], 1, left.min(self.per_word()), 1.0).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;
    use rand_chacha::ChaCha20Rng;

    use super::*;

    #[test]
    fn bits_per_coordinate_are_close_to_what_a_sum_needs() {
        for (bits, cohort, per_word, modulus_bits) in
            [(1, 10, 6, 21), (2, 10, 4, 20), (4, 10, 4, 29), (1, 64, 5, 31), (8, 10, 2, 23), (12, 10, 2, 31)]
        {
            let lanes = Lanes::new(bits, cohort).unwrap();
            assert_eq!((lanes.per_word, lanes.modulus_bits), (per_word, modulus_bits), "{bits} bits, {cohort}");
        }
        assert_eq!(Lanes::new(0, 10), Err(CodecError::Bits(0)));
        assert_eq!(Lanes::new(17, 10), Err(CodecError::Bits(17)));
        let none = CodecError::NoHeadroom { bits: 16, max_cohort: 65_536, best_bits: 15 };
        assert_eq!(Lanes::new(16, 65_536), Err(none));
    }

    #[test]
    fn a_full_cohort_of_extremes_comes_back_exactly() {
        for (bits, cohort) in [(1, 1), (1, 10), (2, 17), (3, 64), (8, 3), (16, 1000), (1, 65_536)] {
            let lanes = Lanes::new(bits, cohort).unwrap();
            assert!(u64::from(cohort) * lanes.bound() < 1 << (lanes.modulus_bits - 1));
            let count = 2 * lanes.per_word() + 1;
            for sign in [-1.0, 1.0] {
                let mut values: Vec<f64> = (0..count).map(|i| if i % 3 == 0 { -sign } else { sign }).collect();
                let mut words = vec![0; lanes.words(count)];
                let expected: Vec<f64> = values.iter().map(|value| value * 2.5 * f64::from(cohort)).collect();
                values.iter_mut().for_each(|value| *value *= 9.0);
                lanes.encode(&mut values, 2.5, 1.0, &mut words, &mut ChaCha20Rng::seed_from_u64(1));
                assert!(values.iter().all(|value| value.abs() == 2.5));
                assert!(
                    (0..count)
                        .step_by(lanes.per_word())
                        .zip(&words)
                        .all(|(at, &word)| { lanes.is_of_one(word, count - at) })
                );
                let mask = u32::MAX >> (32 - u32::from(lanes.modulus_bits));
                let sum: Vec<u32> = words.iter().map(|word| word.wrapping_mul(cohort) & mask).collect();
                assert_eq!(lanes.decode(&sum, cohort, count, 2.5).unwrap(), expected, "{bits} bits, {cohort}");
                if cohort > 1 {
                    assert!(lanes.decode(&sum, cohort - 1, count, 2.5).is_err());
                }
            }
        }
    }
}
