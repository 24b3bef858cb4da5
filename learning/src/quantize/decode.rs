//! Decodes the released sum to the weighted mean.

use super::words::lift;
use super::{Codec, DecodeError};
use crate::metrics::MetricValue;
use crate::privacy::NoisedSum;

/// The weighted mean of a round's updates: input of the server optimizer and of the round's report.
#[derive(Clone, Debug, PartialEq)]
pub struct MeanUpdate {
    /// Mean of the clipped deltas, over the shared layout.
    pub delta: Vec<f32>,
    /// Sum of the capped weights; at least 1.
    pub weight: u64,
    /// Number of updates in the mean; at least 1.
    pub participants: u32,
    /// In the order of the task's metrics; `count` is 0 for one that nobody measured.
    pub metrics: Vec<MetricValue>,
}

impl Codec {
    /// Lifts each word to its signed value and divides by scale and total weight, in `f64`, rounded once to `f32`.
    ///
    /// # Errors
    /// Any [`DecodeError`]; a sum that its participants cannot have produced is rejected, not published.
    pub fn decode(&self, sum: &NoisedSum) -> Result<MeanUpdate, DecodeError> {
        let (bits, participants) = (self.params.modulus_bits, sum.participants());
        if sum.modulus_bits() != bits {
            return Err(DecodeError::ModulusBits { expected: bits, got: sum.modulus_bits() });
        }
        if sum.words().len() != self.len() {
            return Err(DecodeError::Length { expected: self.len(), got: sum.words().len() });
        }
        if !(1..=self.params.max_cohort).contains(&participants) {
            return Err(DecodeError::Participants { got: participants, most: self.params.max_cohort });
        }
        let (values, rest) = sum.words().split_at(self.params.parameters);
        let (weight_word, metric_words) = rest.split_at(1);
        let weight = self.weight(lift(weight_word[0], bits), participants)?;
        // |w v| summed: B times the total weight, below 2^31.
        let largest = i64::from(self.levels) * weight.cast_signed();
        if let Some(index) = values.iter().position(|&word| lift(word, bits).abs() > largest) {
            return Err(DecodeError::OutOfRange { index });
        }
        let divisor = self.scale() * weight as f64;
        #[expect(clippy::cast_possible_truncation, reason = "one rounding to f32 is meant")]
        let delta = values.iter().map(|&word| (lift(word, bits) as f64 / divisor) as f32).collect();
        let metrics = metric_words
            .chunks_exact(self.limbs.per_metric())
            .enumerate()
            .map(|(index, words)| self.limbs.join(words, bits, participants).ok_or(DecodeError::Metric { index }))
            .collect::<Result<_, _>>()?;
        Ok(MeanUpdate { delta, weight, participants, metrics })
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
