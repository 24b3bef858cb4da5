//! Metrics as small integers within the same sum.
//!
//! A metric is sent as `value * count` in fixed point and as `count`, both split into limbs so small that the sum over
//! a full cohort cannot wrap. Limbs add without carry and are recombined into the exact sum.

use super::words::{lift, to_word};
use crate::metrics::MetricValue;

/// Metric values are clamped to `±2^10`.
pub const MAX_VALUE: f64 = 1024.0;
/// Metric counts are clamped to 2^20.
pub const MAX_COUNT: u64 = 1 << 20;
/// `value * count` is rounded to a multiple of 2^-16.
const UNITS: f64 = 65_536.0;
/// `2^10 * 2^20 * 2^16`, inclusive.
const MAX_SUM: i64 = 1 << 46;
const SUM_BITS: u32 = 47;
const COUNT_BITS: u32 = 21;

/// The width of limbs for this modulus and cohort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limbs {
    /// `b - 1 - ceil(log2 n)`: `n (2^bits - 1) <= 2^(b-1) - 1`.
    bits: u32,
}

impl Limbs {
    /// For a validated modulus and cohort: with at least 64 levels, at least 6 bits are left.
    pub(crate) fn new(modulus_bits: u8, max_cohort: u32) -> Self {
        Self { bits: u32::from(modulus_bits) - 1 - max_cohort.next_power_of_two().trailing_zeros() }
    }

    fn of_sum(self) -> usize {
        SUM_BITS.div_ceil(self.bits) as usize
    }

    pub(crate) fn per_metric(self) -> usize {
        self.of_sum() + COUNT_BITS.div_ceil(self.bits) as usize
    }

    /// Largest magnitude of a limb.
    pub(crate) fn largest(self) -> u64 {
        (1 << self.bits) - 1
    }

    /// Number of limbs for integers of this many bits.
    pub(crate) fn for_bits(self, bits: u32) -> usize {
        bits.div_ceil(self.bits) as usize
    }

    /// Whether every word is a limb of a single participant, small enough that those of a full cohort cannot wrap.
    pub(crate) fn are_of_one(self, words: &[u32], modulus_bits: u8) -> bool {
        words.iter().all(|&word| lift(word, modulus_bits).abs() < 1 << self.bits)
    }

    /// Writes the limbs of a metric whose value is finite if its count is above 0.
    pub(crate) fn split(self, metric: MetricValue, mask: u32, words: &mut [u32]) {
        let count = metric.count.min(MAX_COUNT);
        let sum = if count == 0 { 0.0 } else { metric.value.clamp(-MAX_VALUE, MAX_VALUE) * count as f64 };
        #[expect(clippy::cast_possible_truncation, reason = "at most 2^46 and rounded")]
        let sum = (sum * UNITS).round() as i64;
        let (sum_words, count_words) = words.split_at_mut(self.of_sum());
        self.split_integer(sum, mask, sum_words);
        self.split_integer(count.cast_signed(), mask, count_words);
    }

    /// Lowest limb first; a negative number has negative limbs.
    pub(crate) fn split_integer(self, value: i64, mask: u32, words: &mut [u32]) {
        let mut magnitude = value.abs();
        for word in words {
            let limb = magnitude & ((1 << self.bits) - 1);
            magnitude >>= self.bits;
            *word = to_word(limb * value.signum(), mask);
        }
    }

    /// The metric of a sum over `participants`; `None` if they cannot have measured it.
    pub(crate) fn join(self, words: &[u32], modulus_bits: u8, participants: u32) -> Option<MetricValue> {
        let (sum_words, count_words) = words.split_at(self.of_sum());
        let sum = self.join_integer(sum_words, modulus_bits);
        let count = self.join_integer(count_words, modulus_bits);
        let most = i128::from(participants) * i128::from(MAX_COUNT);
        if !(0..=most).contains(&count) || sum.abs() > count * i128::from(MAX_SUM / MAX_COUNT.cast_signed()) {
            return None;
        }
        let count = u64::try_from(count).ok()?;
        // Both are below 2^63; one rounding each, then one division.
        let value = if count == 0 { 0.0 } else { sum as f64 / UNITS / count as f64 };
        Some(MetricValue { value, count })
    }

    /// Whether one participant can have sent these limbs.
    pub(crate) fn is_of_one(self, words: &[u32], modulus_bits: u8) -> bool {
        self.are_of_one(words, modulus_bits) && self.join(words, modulus_bits, 1).is_some()
    }

    pub(crate) fn join_integer(self, words: &[u32], modulus_bits: u8) -> i128 {
        words.iter().rev().fold(0, |sum, &word| (sum << self.bits) + i128::from(lift(word, modulus_bits)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_cohort_of_extremes_comes_back_exactly() {
        for (modulus_bits, cohort) in [(16, 1), (16, 3), (16, 511), (20, 1000), (32, 1), (32, 65_536)] {
            let limbs = Limbs::new(modulus_bits, cohort);
            let mask = u32::MAX >> (32 - u32::from(modulus_bits));
            for value in [-1024.0, 1024.0 - 1.0 / UNITS, 0.0] {
                let metric = MetricValue { value, count: MAX_COUNT - 1 };
                let mut words = vec![0; limbs.per_metric()];
                limbs.split(metric, mask, &mut words);
                let summed: Vec<u32> = words.iter().map(|word| word.wrapping_mul(cohort) & mask).collect();
                let expected = MetricValue { value, count: (MAX_COUNT - 1) * u64::from(cohort) };
                assert_eq!(limbs.join(&summed, modulus_bits, cohort), Some(expected), "{modulus_bits} bits, {cohort}");
            }
        }
    }

    #[test]
    fn clamps_and_leaves_out() {
        let limbs = Limbs::new(32, 10);
        let through = |value, count| {
            let mut words = vec![0; limbs.per_metric()];
            limbs.split(MetricValue { value, count }, u32::MAX, &mut words);
            limbs.join(&words, 32, 1).unwrap()
        };
        assert_eq!(through(1e9, 2), MetricValue { value: 1024.0, count: 2 });
        assert_eq!(through(-0.5, u64::MAX), MetricValue { value: -0.5, count: MAX_COUNT });
        assert_eq!(through(f64::NAN, 0), MetricValue { value: 0.0, count: 0 });
        // 7 of 9 right is a whole number of units, so it comes back to the last bit.
        assert_eq!(through(7.0 / 9.0, 9), MetricValue { value: 7.0 / 9.0, count: 9 });
    }

    #[test]
    fn refuses_what_nobody_could_have_measured() {
        let limbs = Limbs::new(32, 2);
        let mut words = vec![0; limbs.per_metric()];
        limbs.split(MetricValue { value: 1024.0, count: 4 }, u32::MAX, &mut words);
        assert!(limbs.join(&words, 32, 1).is_some());
        words[0] += 1;
        assert_eq!(limbs.join(&words, 32, 1), None);
        let count = limbs.of_sum();
        words.fill(0);
        words[count] = u32::MAX;
        assert_eq!(limbs.join(&words, 32, 1), None);
        words[count] = u32::try_from(MAX_COUNT).unwrap() + 1;
        assert_eq!(limbs.join(&words, 32, 1), None);
        assert!(limbs.join(&words, 32, 2).is_some());
    }
}
