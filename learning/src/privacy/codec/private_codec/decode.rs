//! Decodes the noised sum of a private task to the mean, whole or slice by slice.

use super::grid::{half, tail};
use super::{PrivateCodec, PrivateDecodeError, PrivateMean};
use crate::privacy::codec::rotation::{RotateBack, SLICE};
use crate::privacy::{NoisedSum, SumHeader};

/// Decodes the slices of a sum in order.
pub struct PrivateDecoder<'a> {
    codec: &'a PrivateCodec,
    participants: u32,
    /// Largest magnitude of a word of the sum.
    most: f64,
    divisor: f64,
    rotation: Option<RotateBack>,
    /// Number of decoded words.
    at: usize,
}

impl PrivateCodec {
    /// Undoes scale and rotation and divides by the fixed denominator, rounded once to `f32`.
    ///
    /// # Errors
    /// Any [`PrivateDecodeError`]; a sum that honest participants and noise of twelve standard deviations cannot have
    /// produced is rejected, not published.
    pub fn decode(
        &self,
        sum: &NoisedSum,
        clip: f64,
        rotation_seed: &[u8; 32],
    ) -> Result<PrivateMean, PrivateDecodeError> {
        let mut decoder = self.decoder(sum.header(), clip, rotation_seed)?;
        let (words, count) = sum.words().split_at(self.dimension.min(sum.words().len()));
        let delta = decoder.next(words)?;
        Ok(PrivateMean { delta, within_clip: decoder.within_clip(count)? })
    }

    /// Decodes the sum with this header slice by slice.
    ///
    /// # Errors
    /// Any [`PrivateDecodeError`] but [`PrivateDecodeError::OutOfRange`].
    pub fn decoder(
        &self,
        sum: SumHeader,
        clip: f64,
        rotation_seed: &[u8; 32],
    ) -> Result<PrivateDecoder<'_>, PrivateDecodeError> {
        let (bits, participants) = (self.params().modulus_bits, sum.participants());
        if sum.words() != self.len() || sum.modulus_bits() != bits {
            return Err(PrivateDecodeError::Shape {
                expected: self.len(),
                got: sum.words(),
                expected_bits: bits,
                got_bits: sum.modulus_bits(),
            });
        }
        let most = self.params().max_cohort;
        if participants > most {
            return Err(PrivateDecodeError::Participants { got: participants, most });
        }
        if !(clip.is_normal() && clip > 0.0) {
            return Err(PrivateDecodeError::Clip(clip));
        }
        let counted = if self.is_count_secret { most } else { participants };
        Ok(PrivateDecoder {
            codec: self,
            participants,
            most: f64::from(counted) * self.sensitivity() + tail(self.sigma().value() * self.params().noise_ceiling),
            divisor: self.scale(clip) * self.params().expected_cohort * self.params().expected_weight,
            rotation: self.params().rotate.then(|| RotateBack::new(rotation_seed)),
            at: 0,
        })
    }

    /// Slices for separate decoding start at multiples of this many words.
    #[must_use]
    pub fn slice_start(&self) -> usize {
        if self.params().rotate { SLICE } else { 1 }
    }

    /// Number of words of a sum for values, in order; the count follows.
    #[must_use]
    pub fn value_words(&self) -> usize {
        self.dimension
    }
}

impl PrivateDecoder<'_> {
    /// The values of the next words. All slices but the last have a multiple of [`PrivateCodec::slice_start`] words; the last
    /// one's padding is dropped.
    ///
    /// # Errors
    /// [`PrivateDecodeError::OutOfRange`].
    pub fn next(&mut self, words: &[u32]) -> Result<Vec<f32>, PrivateDecodeError> {
        let mut values = self.lifted(words)?;
        if let Some(rotation) = &mut self.rotation {
            rotation.next(&mut values);
        }
        values.truncate(self.codec.params().parameters.saturating_sub(self.at));
        self.at += words.len();
        #[expect(clippy::cast_possible_truncation, reason = "one rounding to f32 is meant")]
        let values = values.into_iter().map(|value| (value / self.divisor) as f32).collect();
        Ok(values)
    }

    /// The noisy fraction of updates within the norm, from the words after the values; `None` without adaptive clipping.
    ///
    /// # Errors
    /// [`PrivateDecodeError::OutOfRange`].
    pub fn within_clip(&self, count: &[u32]) -> Result<Option<f64>, PrivateDecodeError> {
        let count = self.lifted(count)?;
        Ok(count.first().map(|count| {
            let count = count / (2.0 * f64::from(self.codec.count_units));
            count / self.codec.params().expected_cohort + 0.5
        }))
    }

    fn lifted(&self, words: &[u32]) -> Result<Vec<f64>, PrivateDecodeError> {
        let bits = self.codec.params().modulus_bits;
        let values: Vec<f64> = words.iter().map(|&word| lift(word, bits)).collect();
        match values.iter().position(|value| value.abs() > self.most) {
            Some(index) => {
                Err(PrivateDecodeError::OutOfRange { index: self.at + index, participants: self.participants })
            }
            None => Ok(values),
        }
    }
}

fn lift(word: u32, modulus_bits: u8) -> f64 {
    let word = f64::from(word);
    if word > f64::from(half(modulus_bits)) { word - f64::from(half(modulus_bits)) * 2.0 - 2.0 } else { word }
}
