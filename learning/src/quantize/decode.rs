//! Decodes the released sum to the weighted mean.

use super::words::lift;
use super::{Codec, DecodeError};
use crate::metrics::MetricValue;
use crate::privacy::{NoisedSum, SumHeader};

/// The weighted mean of a round's updates: input of the server optimizer and of the round's report.
#[derive(Clone, Debug, PartialEq)]
pub struct MeanUpdate {
    /// Mean of the clipped deltas, over the shared layout.
    pub delta: Vec<f32>,
    /// Sum of the capped weights; at least 1.
    pub weight: u64,
    /// Number of updates in the mean; at least 1.
    pub participants: u32,
    /// In the order of the task's metrics; `count` is 0 for an unmeasured one.
    pub metrics: Vec<MetricValue>,
}

/// The decoded words after the values of a sum.
#[derive(Clone, Debug, PartialEq)]
pub struct SumTail {
    /// Sum of the capped weights; at least 1.
    pub weight: u64,
    /// Number of updates in the sum; at least 1.
    pub participants: u32,
    /// In the order of the task's metrics; `count` is 0 for an unmeasured one.
    pub metrics: Vec<MetricValue>,
}

impl Codec {
    /// Lifts each word to its signed value and divides by scale and total weight, in `f64`, rounded once to `f32`.
    ///
    /// # Errors
    /// Any [`DecodeError`]; a sum that its participants cannot have produced is rejected, not published.
    pub fn decode(&self, sum: &NoisedSum) -> Result<MeanUpdate, DecodeError> {
        let (values, tail) = sum.words().split_at(self.params.parameters.min(sum.words().len()));
        let tail = self.decode_tail(sum.header(), tail)?;
        let delta = self.decode_values(&tail, 0, values)?;
        Ok(tail.with(delta))
    }

    /// Decodes the words after the values of a sum with this header. They come first: the weight divides the values.
    ///
    /// # Errors
    /// Any [`DecodeError`] but [`DecodeError::OutOfRange`].
    pub fn decode_tail(&self, sum: SumHeader, tail: &[u32]) -> Result<SumTail, DecodeError> {
        let (bits, participants) = (self.params.modulus_bits, sum.participants());
        if sum.modulus_bits() != bits {
            return Err(DecodeError::ModulusBits { expected: bits, got: sum.modulus_bits() });
        }
        let wrong_length = DecodeError::Length { expected: self.len(), got: sum.words() };
        if sum.words() != self.len() || tail.len() != self.len() - self.params.parameters {
            return Err(wrong_length);
        }
        if !(1..=self.params.max_cohort).contains(&participants) {
            return Err(DecodeError::Participants { got: participants, most: self.params.max_cohort });
        }
        let Some((&weight, metrics)) = tail.split_first() else { return Err(wrong_length) };
        let weight = self.weight(lift(weight, bits), participants)?;
        let metrics = metrics
            .chunks_exact(self.limbs.per_metric())
            .enumerate()
            .map(|(index, words)| self.limbs.join(words, bits, participants).ok_or(DecodeError::Metric { index }))
            .collect::<Result<_, _>>()?;
        Ok(SumTail { weight, participants, metrics })
    }

    /// Decodes the words of values from the `start`-th on, of the sum with this tail.
    ///
    /// # Errors
    /// [`DecodeError::OutOfRange`].
    pub fn decode_values(&self, tail: &SumTail, start: usize, words: &[u32]) -> Result<Vec<f32>, DecodeError> {
        let bits = self.params.modulus_bits;
        // |w v| summed: B times the total weight, below 2^31.
        let largest = i64::from(self.levels) * tail.weight.cast_signed();
        if let Some(index) = words.iter().position(|&word| lift(word, bits).abs() > largest) {
            return Err(DecodeError::OutOfRange { index: start + index });
        }
        let divisor = self.scale() * tail.weight as f64;
        #[expect(clippy::cast_possible_truncation, reason = "one rounding to f32 is meant")]
        let values = words.iter().map(|&word| (lift(word, bits) as f64 / divisor) as f32).collect();
        Ok(values)
    }

    /// Checks the total weight: every participant weighs 1 to `W`.
    fn weight(&self, weight: i64, participants: u32) -> Result<u64, DecodeError> {
        let most = u64::from(participants) * u64::from(self.params.max_weight);
        match u64::try_from(weight) {
            Ok(weight) if (u64::from(participants)..=most).contains(&weight) => Ok(weight),
            _ => Err(DecodeError::Weight { weight, participants, most }),
        }
    }
}

impl SumTail {
    /// The mean with these values.
    #[must_use]
    pub fn with(self, delta: Vec<f32>) -> MeanUpdate {
        let Self { weight, participants, metrics } = self;
        MeanUpdate { delta, weight, participants, metrics }
    }
}
