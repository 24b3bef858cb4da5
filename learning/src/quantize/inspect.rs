//! Checks an encoded update before it is added to a sum, in tasks without masks.
//!
//! [`Codec::decode`] rejects a sum that honest participants cannot have produced, and with it all updates. A
//! coordinator that can read single updates rejects the invalid one instead.

use super::Codec;
use super::words::lift;
use crate::vectorized::vectorized;

/// Reasons [`Codec::encode`] cannot have produced an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ImplausibleUpdate {
    /// The number of words is wrong.
    #[error("an update of this task has {expected} words, this one has {got}")]
    Length { expected: usize, got: usize },
    /// The weight is 0 or above the cap.
    #[error("its weight is {weight}; an update weighs 1 to {most}")]
    Weight { weight: i64, most: u32 },
    /// A coordinate beyond the limit for the weight.
    #[error("value {index} is {value}, beyond the {most} that its weight allows")]
    OutOfRange {
        /// Index of the largest value in the shared layout.
        index: usize,
        /// Magnitude of that value.
        value: i64,
        most: i64,
    },
    /// A metric outside a participant's possible values, or with limbs that could make a sum wrap.
    #[error("no single participant can have measured metric {index}")]
    Metric { index: usize },
}

/// Number of words whose maximum is found at once.
const BLOCK: usize = 256;

/// Checks an update word by word and keeps only its tail.
#[derive(Clone, Debug)]
pub struct Inspector {
    codec: Codec,
    seen: usize,
    /// Index and magnitude of the largest value.
    largest: (usize, i64),
    /// The weight's word and the metrics' limbs.
    rest: Vec<u32>,
}

impl Codec {
    /// An inspector for one update.
    #[must_use]
    pub fn inspector(&self) -> Inspector {
        let rest = Vec::with_capacity(self.len() - self.params.parameters);
        Inspector { codec: *self, seen: 0, largest: (0, 0), rest }
    }
}

impl Inspector {
    /// Checks the next word, which must be below 2^b.
    #[inline]
    pub fn push(&mut self, word: u32) {
        if self.seen < self.codec.params.parameters {
            let size = lift(word, self.codec.params.modulus_bits).abs();
            if size > self.largest.1 {
                self.largest = (self.seen, size);
            }
        } else if self.seen < self.codec.len() {
            self.rest.push(word);
        }
        self.seen += 1;
    }

    /// Checks the next words, like [`Self::push`] on each.
    pub fn push_all(&mut self, words: &[u32]) {
        let parameters = self.codec.params.parameters;
        let (values, rest) = words.split_at(words.len().min(parameters.saturating_sub(self.seen)));
        let unused = 32 - u32::from(self.codec.params.modulus_bits);
        let size = |word: u32| ((word << unused).cast_signed() >> unused).unsigned_abs();
        for values in values.chunks(BLOCK) {
            let largest = vectorized(
                #[inline(always)]
                || values.iter().fold(0, |largest, &word| size(word).max(largest)),
            );
            if i64::from(largest) > self.largest.1 {
                let place = values.iter().position(|&word| size(word) == largest).unwrap_or_default();
                self.largest = (self.seen + place, largest.into());
            }
            self.seen += values.len();
        }
        rest.iter().for_each(|&word| self.push(word));
    }

    /// # Errors
    /// The first [`ImplausibleUpdate`] found: added to others, the update could spoil or wrap their sum.
    pub fn finish(self) -> Result<(), ImplausibleUpdate> {
        let Self { codec, seen, largest: (index, value), rest } = self;
        let (bits, limbs) = (codec.params.modulus_bits, codec.limbs);
        let length = ImplausibleUpdate::Length { expected: codec.len(), got: seen };
        let Some((&weight, metrics)) = rest.split_first().filter(|_| seen == codec.len()) else { return Err(length) };
        let (weight, most) = (lift(weight, bits), codec.params.max_weight);
        if !(1..=i64::from(most)).contains(&weight) {
            return Err(ImplausibleUpdate::Weight { weight, most });
        }
        let most = i64::from(codec.levels) * weight;
        if value > most {
            return Err(ImplausibleUpdate::OutOfRange { index, value, most });
        }
        match metrics.chunks_exact(limbs.per_metric()).position(|words| !limbs.is_of_one(words, bits)) {
            Some(index) => Err(ImplausibleUpdate::Metric { index }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;
    use rand_chacha::ChaCha20Rng;

    use super::super::QuantizationParams;
    use super::*;
    use crate::metrics::MetricValue;
    use crate::update::Update;

    fn codec(modulus_bits: u8) -> Codec {
        let params = QuantizationParams {
            parameters: 3,
            modulus_bits,
            clip_range: 1.0,
            clip_norm: None,
            max_weight: 10,
            max_cohort: 5,
            metrics: 2,
        };
        Codec::new(params).unwrap()
    }

    fn judge(codec: &Codec, words: &[u32]) -> Result<(), ImplausibleUpdate> {
        let mut inspector = codec.inspector();
        words.iter().for_each(|&word| inspector.push(word));
        for size in [1, 2, words.len().max(1)] {
            let mut at_once = codec.inspector();
            words.chunks(size).for_each(|words| at_once.push_all(words));
            assert_eq!(at_once.finish(), inspector.clone().finish(), "in pieces of {size}");
        }
        inspector.finish()
    }

    /// An update with the largest values allowed.
    fn extreme(codec: &Codec) -> Vec<u32> {
        let metrics = vec![MetricValue { value: -1e9, count: u64::MAX }, MetricValue { value: 0.5, count: 3 }];
        let update = Update { delta: vec![9.0, -9.0, 0.1], examples: 1000, metrics };
        codec.encode(&update, &mut ChaCha20Rng::seed_from_u64(1)).unwrap().words
    }

    #[test]
    fn what_the_codec_encodes_is_plausible() {
        for bits in [16, 20, 32] {
            let codec = codec(bits);
            assert_eq!(judge(&codec, &extreme(&codec)), Ok(()), "{bits}");
        }
    }

    #[test]
    fn what_goes_beyond_is_not() {
        let codec = codec(20);
        let good = extreme(&codec);
        let with = |index: usize, word: u32| {
            let mut words = good.clone();
            words[index] = word & 0xf_ffff;
            judge(&codec, &words)
        };
        let most = i64::from(codec.levels) * 10;
        let value = most + 1;
        assert_eq!(with(0, good[0] + 1), Err(ImplausibleUpdate::OutOfRange { index: 0, value, most }));
        assert_eq!(with(1, good[1] - 1), Err(ImplausibleUpdate::OutOfRange { index: 1, value, most }));
        assert_eq!(with(3, 0), Err(ImplausibleUpdate::Weight { weight: 0, most: 10 }));
        assert_eq!(with(3, 11), Err(ImplausibleUpdate::Weight { weight: 11, most: 10 }));
        assert_eq!(with(3, u32::MAX), Err(ImplausibleUpdate::Weight { weight: -1, most: 10 }));
        assert_eq!(with(3, 9), Err(ImplausibleUpdate::OutOfRange { index: 0, value: most, most: most / 10 * 9 }));
        for index in 4..good.len() {
            // A limb so large that a cohort of them wraps.
            assert!(matches!(with(index, 0x7_ffff), Err(ImplausibleUpdate::Metric { .. })), "{index}");
        }
        assert!(matches!(judge(&codec, &good[1..]), Err(ImplausibleUpdate::Length { .. })));
        assert!(matches!(judge(&codec, &[&good[..], &[0]].concat()), Err(ImplausibleUpdate::Length { .. })));
    }
}
