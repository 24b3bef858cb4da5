//! Encodes bounded integers as words modulo 2^b, so that their sum over a cohort is recovered exactly.
//!
//! A value whose bound times the cohort fits a word takes one word. A larger value is cut into base-2^D digits, lowest first, the top one
//! signed; digits add without carry and are recombined after the sum. All values are exact and sums cannot wrap: [`SumCodec::new`] proves
//! it.

use std::sync::Arc;

use super::error::AnalyticsError;
use crate::privacy::NoisedSum;
use crate::quantize::{MAX_COHORT, half, lift, to_word};

/// Maximum number of words in a contribution (64 MiB).
pub const MAX_SUM_WORDS: usize = 1 << 24;
/// Bound on the magnitude of every sum.
const MAX_SUM: u64 = 1 << 62;
/// Fewest bits of a digit: smaller ones would take more words than a number is worth.
const LEAST_DIGIT_BITS: u32 = 4;

/// Several values with the same bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    pub len: usize,
    /// Largest magnitude of one participant's value.
    pub bound: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Placed {
    field: Field,
    digits: u32,
}

/// The encoding of a contribution as words; cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SumCodec {
    fields: Arc<[Placed]>,
    modulus_bits: u8,
    max_cohort: u32,
    /// Largest magnitude of a word of one contribution.
    room: u32,
    /// `D`, the bits of a digit.
    digit_bits: u32,
    values: usize,
    words: usize,
}

impl SumCodec {
    /// Assigns a position to each field.
    ///
    /// # Errors
    /// [`AnalyticsError::Spec`] with the task's field and a fitting value.
    pub fn new(fields: &[Field], modulus_bits: u8, max_cohort: u32) -> Result<Self, AnalyticsError> {
        let refuse = |field: &str, problem: String| Err(AnalyticsError::spec(field, problem));
        if !(16..=32).contains(&modulus_bits) {
            return refuse("modulus_bits", format!("is {modulus_bits}; it must be 16 to 32"));
        }
        if !(1..=MAX_COHORT).contains(&max_cohort) {
            return refuse("max_cohort", format!("is {max_cohort}; it must be 1 to {MAX_COHORT}"));
        }
        let room = half(modulus_bits) / max_cohort;
        let digit_bits = (room + 1).ilog2();
        if digit_bits < LEAST_DIGIT_BITS {
            let problem = format!(
                "a cohort of {max_cohort} leaves {digit_bits} bits of a word modulo 2^{modulus_bits}, fewer than \
                 {LEAST_DIGIT_BITS}; raise modulus_bits or lower the cohort"
            );
            return refuse("modulus_bits", problem);
        }
        let (mut placed, mut values, mut words) = (Vec::with_capacity(fields.len()), 0_usize, 0_usize);
        for &field in fields {
            if field.bound.checked_mul(u64::from(max_cohort)).is_none_or(|sum| sum >= MAX_SUM) {
                let problem = format!("a cohort of {max_cohort} with values up to {} sums beyond 2^62", field.bound);
                return refuse("max_rows", problem);
            }
            let digits = digits(field.bound, room, digit_bits);
            placed.push(Placed { field, digits });
            values = values.saturating_add(field.len);
            words = words.saturating_add(field.len.saturating_mul(digits as usize));
        }
        if !(1..=MAX_SUM_WORDS).contains(&words) {
            let problem = format!(
                "a contribution would have {words} words; at most {MAX_SUM_WORDS} are possible: fewer columns, bins, \
                 classes, clusters or a smaller depth make it shorter"
            );
            return refuse("size", problem);
        }
        Ok(Self { fields: placed.into(), modulus_bits, max_cohort, room, digit_bits, values, words })
    }

    /// Number of words in a contribution.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a contribution is never empty")]
    pub fn len(&self) -> usize {
        self.words
    }

    /// Number of values in a contribution, before encoding.
    #[must_use]
    pub fn values(&self) -> usize {
        self.values
    }

    #[must_use]
    pub fn modulus_bits(&self) -> u8 {
        self.modulus_bits
    }

    /// Maximum number of contributions in one sum.
    #[must_use]
    pub fn max_cohort(&self) -> u32 {
        self.max_cohort
    }

    /// Largest magnitude of a word of one contribution, read as a signed number.
    #[must_use]
    pub fn input_bound(&self) -> u64 {
        self.fields.iter().map(|placed| self.word_bound(*placed)).max().unwrap_or_default()
    }

    fn word_bound(&self, placed: Placed) -> u64 {
        match placed.digits {
            1 => placed.field.bound,
            digits => top(placed.field.bound, digits, self.digit_bits).max((1 << self.digit_bits) - 1),
        }
    }

    /// Encodes a contribution.
    ///
    /// # Errors
    /// [`AnalyticsError::Shape`], or [`AnalyticsError::Sum`] if a value exceeds its field's bound. The participant
    /// keeps the error to itself and sends nothing.
    pub fn encode(&self, values: &[i64]) -> Result<Vec<u32>, AnalyticsError> {
        if values.len() != self.values {
            return Err(AnalyticsError::Shape { what: "values", expected: self.values, got: values.len() });
        }
        let mask = u32::MAX >> (32 - u32::from(self.modulus_bits));
        let low = (1_i64 << self.digit_bits) - 1;
        let mut words = Vec::with_capacity(self.words);
        let mut rest = values;
        for placed in &*self.fields {
            let (own, after) = rest.split_at(placed.field.len);
            rest = after;
            for &value in own {
                if value.unsigned_abs() > placed.field.bound {
                    let problem = format!("a value is {value}, its bound {}", placed.field.bound);
                    return Err(AnalyticsError::Sum(problem));
                }
                let mut remaining = value;
                for _ in 1..placed.digits {
                    words.push(to_word(remaining & low, mask));
                    remaining >>= self.digit_bits;
                }
                words.push(to_word(remaining, mask));
            }
        }
        Ok(words)
    }

    /// The summed values.
    ///
    /// # Errors
    /// [`AnalyticsError::Sum`]: the sum has another form, or exceeds what its participants can have contributed.
    pub fn decode(&self, sum: &NoisedSum) -> Result<Vec<i64>, AnalyticsError> {
        let garbage = |problem: String| Err(AnalyticsError::Sum(problem));
        let participants = sum.participants();
        if sum.modulus_bits() != self.modulus_bits || sum.words().len() != self.words {
            let (words, bits) = (sum.words().len(), sum.modulus_bits());
            let (own, own_bits) = (self.words, self.modulus_bits);
            return garbage(format!("{words} words modulo 2^{bits} instead of {own} modulo 2^{own_bits}"));
        }
        if !(1..=self.max_cohort).contains(&participants) {
            return garbage(format!("{participants} participants, proven for {}", self.max_cohort));
        }
        let mut values = Vec::with_capacity(self.values);
        let mut rest = sum.words();
        for placed in &*self.fields {
            let (own, after) = rest.split_at(placed.field.len * placed.digits as usize);
            rest = after;
            let most = placed.field.bound * u64::from(participants);
            for digits in own.chunks_exact(placed.digits as usize) {
                let value = digits.iter().rev().fold(0_i128, |value, &digit| {
                    (value << self.digit_bits) + i128::from(lift(digit, self.modulus_bits))
                });
                match i64::try_from(value) {
                    Ok(value) if value.unsigned_abs() <= most => values.push(value),
                    _ => return garbage(format!("value {} is {value}, beyond {most}", values.len())),
                }
            }
        }
        Ok(values)
    }

    /// Moves estimates of sums to the nearest that `participants` participants can have.
    pub(super) fn clamp(&self, sums: &mut [i64], participants: u32) {
        let mut rest = sums;
        for placed in &*self.fields {
            let (own, after) = rest.split_at_mut(placed.field.len);
            rest = after;
            let most = (placed.field.bound * u64::from(participants.min(self.max_cohort))).cast_signed();
            own.iter_mut().for_each(|sum| *sum = (*sum).clamp(-most, most));
        }
    }

    /// An inspector for one contribution sent in the clear.
    #[must_use]
    pub fn inspector(&self) -> SumInspector {
        SumInspector { codec: self.clone(), seen: 0, field: 0, left: 0, wrong: None }
    }
}

fn digits(bound: u64, room: u32, digit_bits: u32) -> u32 {
    if bound <= u64::from(room) {
        return 1;
    }
    // The bound is below 2^62, so 16 digits of 4 bits are enough.
    (2..=16).find(|&digits| top(bound, digits, digit_bits) <= u64::from(room)).unwrap_or(16)
}

/// Largest magnitude of the top digit: an arithmetic shift rounds negative numbers away from 0.
fn top(bound: u64, digits: u32, digit_bits: u32) -> u64 {
    bound.checked_shr(digit_bits * (digits - 1)).unwrap_or_default() + 1
}

/// Checks an unmasked contribution word by word, so that it cannot wrap the sum.
#[derive(Clone, Debug)]
pub struct SumInspector {
    codec: SumCodec,
    seen: usize,
    field: usize,
    /// Words left in the current field.
    left: usize,
    wrong: Option<usize>,
}

/// Reasons a contribution cannot come from an honest participant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ImplausibleContribution {
    /// Truncated, or followed by extra words.
    #[error("it has {got} words instead of {expected}")]
    Length { expected: usize, got: usize },
    /// A word exceeds its field's bound.
    #[error("word {index} is beyond what one participant can contribute")]
    OutOfRange {
        /// Index of the first such word.
        index: usize,
    },
}

impl SumInspector {
    /// Checks the next word, which must be below 2^b.
    pub fn push(&mut self, word: u32) {
        let index = self.seen;
        self.seen += 1;
        if index >= self.codec.words {
            return;
        }
        while self.left == 0 {
            let placed = self.codec.fields[self.field];
            self.left = placed.field.len * placed.digits as usize;
            self.field += 1;
        }
        self.left -= 1;
        let placed = self.codec.fields[self.field - 1];
        let size = lift(word, self.codec.modulus_bits);
        // The words of a value are adjacent; the last one is the top digit, the only signed one.
        let last = self.left.is_multiple_of(placed.digits as usize);
        let bound = match placed.digits {
            1 => placed.field.bound,
            digits if last => top(placed.field.bound, digits, self.codec.digit_bits),
            _ => (1 << self.codec.digit_bits) - 1,
        };
        if size.unsigned_abs() > bound || (size < 0 && !last) {
            self.wrong.get_or_insert(index);
        }
    }

    /// # Errors
    /// The first [`ImplausibleContribution`] found.
    pub fn finish(self) -> Result<(), ImplausibleContribution> {
        if self.seen != self.codec.words {
            return Err(ImplausibleContribution::Length { expected: self.codec.words, got: self.seen });
        }
        self.wrong.map_or(Ok(()), |index| Err(ImplausibleContribution::OutOfRange { index }))
    }
}

/// The finest grid, of at most `most` bits, on which `values` values of up to 1 from each member of a full cohort sum
/// within one word; at least `least` bits, even if values then take more words.
pub(super) fn grid_bits(values: u32, modulus_bits: u8, max_cohort: u32, least: u32, most: u32) -> u32 {
    let total = u64::from(values) * u64::from(max_cohort);
    let room = if (16..=32).contains(&modulus_bits) { u64::from(half(modulus_bits)) } else { 0 };
    (room / total.max(1)).checked_ilog2().unwrap_or(0).clamp(least, most)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::privacy::ExactSum;

    fn sum_of(codec: &SumCodec, contributions: &[Vec<i64>]) -> NoisedSum {
        let mask = u32::MAX >> (32 - u32::from(codec.modulus_bits));
        let mut total = vec![0_u32; codec.len()];
        for contribution in contributions {
            for (sum, word) in total.iter_mut().zip(codec.encode(contribution).unwrap()) {
                *sum = sum.wrapping_add(word) & mask;
            }
        }
        let count = u32::try_from(contributions.len()).unwrap();
        ExactSum::new(total, codec.modulus_bits, count).map(ExactSum::release_without_noise).unwrap()
    }

    proptest! {
        #[test]
        fn sums_come_back_exactly(
            bits in 16_u8..=32,
            cohort in 1_u32..=200,
            bounds in prop::collection::vec(0_u64..1 << 50, 1..6),
            seed in any::<u64>(),
        ) {
            let fields: Vec<_> = bounds.iter().map(|&bound| Field { len: 2, bound }).collect();
            let codec = SumCodec::new(&fields, bits, cohort).unwrap();
            // Half of the values at their bound.
            let mut state = seed | 1;
            let mut value = |bound: u64| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let size = if state & 2 == 0 { bound } else { (state >> 8) % (bound + 1) };
                if state & 4 == 0 { size.cast_signed() } else { -size.cast_signed() }
            };
            let contributions: Vec<Vec<i64>> = (0..cohort)
                .map(|_| bounds.iter().flat_map(|&bound| [bound, bound]).map(&mut value).collect())
                .collect();
            for contribution in &contributions {
                let words = codec.encode(contribution).unwrap();
                prop_assert!(words.iter().all(|&word| lift(word, bits).unsigned_abs() <= codec.input_bound()));
                let mut inspector = codec.inspector();
                words.iter().for_each(|&word| inspector.push(word));
                prop_assert_eq!(inspector.finish(), Ok(()));
            }
            prop_assert!(codec.input_bound() * u64::from(cohort) <= u64::from(half(bits)));
            let expected: Vec<i64> =
                (0..codec.values()).map(|i| contributions.iter().map(|values| values[i]).sum()).collect();
            prop_assert_eq!(codec.decode(&sum_of(&codec, &contributions)).unwrap(), expected);
        }
    }

    #[test]
    fn refuses_what_has_no_headroom() {
        let error = |fields: &[Field], bits, cohort| SumCodec::new(fields, bits, cohort).unwrap_err().to_string();
        let field = Field { len: 1, bound: 1 };
        assert!(error(&[field], 15, 3).contains("16 to 32"));
        assert!(error(&[field], 32, 0).contains("max_cohort"));
        assert!(error(&[field], 16, 4000).contains("raise modulus_bits or lower the cohort"));
        assert!(error(&[Field { len: 1, bound: 1 << 61 }], 32, 3).contains("2^62"));
        assert!(error(&[Field { len: MAX_SUM_WORDS + 1, bound: 1 }], 32, 3).contains("at most 16777216"));
        assert!(error(&[Field { len: usize::MAX, bound: u64::MAX >> 8 }], 32, 3).contains("fewer columns"));
        assert!(error(&[], 32, 3).contains("0 words"));
    }

    #[test]
    fn refuses_values_and_sums_beyond_the_bounds() {
        let codec = SumCodec::new(&[Field { len: 2, bound: 10 }, Field { len: 1, bound: 1 << 40 }], 20, 10).unwrap();
        assert!(codec.encode(&[11, 0, 0]).is_err());
        assert!(codec.encode(&[10, -10, (1 << 40) + 1]).is_err());
        assert!(codec.encode(&[10, -10]).is_err());
        let one = [10, -10, -(1 << 40)].to_vec();
        let sum = sum_of(&codec, &[one.clone(), one.clone()]);
        assert_eq!(codec.decode(&sum).unwrap(), [20, -20, -(1 << 41)]);

        let release =
            |words, bits, participants| ExactSum::new(words, bits, participants).unwrap().release_without_noise();
        let mut words = sum.words().to_vec();
        assert!(codec.decode(&release(words.clone(), 20, 1)).is_err(), "of one alone it is too large");
        assert!(codec.decode(&release(words.clone(), 20, 11)).is_err(), "more than the cohort");
        assert!(codec.decode(&release(words.clone(), 21, 2)).is_err(), "another modulus");
        words.pop();
        assert!(codec.decode(&release(words, 20, 2)).is_err(), "another length");

        let inspect = |change: &dyn Fn(&mut Vec<u32>)| {
            let mut words = codec.encode(&one).unwrap();
            change(&mut words);
            let mut inspector = codec.inspector();
            words.iter().for_each(|&word| inspector.push(word));
            inspector.finish()
        };
        assert_eq!(inspect(&|_| ()), Ok(()));
        assert_eq!(inspect(&|words| words[0] = 11), Err(ImplausibleContribution::OutOfRange { index: 0 }));
        assert_eq!(inspect(&|words| words[2] = 0xf_ffff), Err(ImplausibleContribution::OutOfRange { index: 2 }));
        assert!(matches!(inspect(&|words| words.push(0)), Err(ImplausibleContribution::Length { .. })));
        assert!(matches!(inspect(&|words| words.truncate(1)), Err(ImplausibleContribution::Length { .. })));
    }

    #[test]
    fn the_grid_is_as_fine_as_one_word_allows() {
        assert_eq!(grid_bits(1000, 32, 100, 8, 20), 14);
        assert_eq!(grid_bits(1, 32, 1, 8, 20), 20);
        assert_eq!(grid_bits(1 << 24, 16, 60_000, 8, 20), 8);
    }
}
