//! Floats to integer words and back where a privacy mechanism adds noise to the sum.
//!
//! Differs from [`Codec`](crate::Codec) in what a sum may tell. The L2 norm of what one participant adds is bounded *in
//! integers*, after rounding: clip, weigh, scale, rotate if the task says so, then round stochastically again and again until
//! the integer vector is no longer than the bound (conditional rounding, Kairouz, Liu, Steinke 2021). The weight is a factor
//! of at most 1 within the clipped update and the mean has a fixed denominator, so neither who came nor how much data they
//! have is told; metrics do not travel. All coordinates are noised alike, one more of them says whether the update was within
//! the norm where the clip adapts.
//!
//! The grid is fixed for a task: an update of exactly the clipping norm has the length of `clip_units` grid units whatever the
//! norm is worth in a round. So sensitivity and noise are integers' and do not move when the clip does.

mod error;
mod grid;

pub use error::{PrivateCodecError, PrivateDecodeError, PrivateEncodeError};
pub(super) use grid::CLIP_UNITS_MIN;
pub use grid::PrivateCodecParams;

use grid::{check, half, headroom, longest, tail, units_for};
use rand::CryptoRng;

use super::NoisedSum;
use super::accountant::inflated_sensitivity;
use super::discrete_gaussian::Sigma;
use super::rotation::{padded, rotate, rotate_back};
use crate::clip;
use crate::parameters::first_not_finite;
use crate::quantize::QuantizedUpdate;
use crate::update::Update;

/// What a noised sum says.
#[derive(Clone, Debug, PartialEq)]
pub struct PrivateMean {
    /// The sum of the clipped, weighed deltas over the fixed denominator.
    pub delta: Vec<f32>,
    /// Estimated part of the expected participants whose norm was within the clip, where it adapts; noise may carry it
    /// below 0 or above 1.
    pub within_clip: Option<f64>,
}

/// Parameters that are proven to leave headroom, and the grid that follows from them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PrivateCodec {
    params: PrivateCodecParams,
    /// Coordinates of the update, padding included.
    dimension: usize,
    /// `A`: length in grid units of an update of the clipping norm.
    clip_units: f64,
    /// Longest rounded update, squared.
    square_max: u64,
    /// What the count's coordinate is up or down by.
    count_units: u32,
    sensitivity: f64,
    sigma: Sigma,
    /// Whether nothing may depend on how many updates a sum holds.
    is_count_secret: bool,
}

/// A finer grid, on which the noise is wider than this, serves nothing.
const SIGMA_UNITS_MAX: f64 = 4_194_304.0;
/// Tries before rounding falls back to dropping fractions, which is never too long; each succeeds with two in five.
const ROUNDINGS_MAX: u32 = 100;

impl PrivateCodec {
    /// Checks the parameters and lays the grid so that the sum of a full cohort and noise of twelve standard deviations
    /// cannot wrap around, or hardly does where `wrap_sigmas` says so.
    ///
    /// # Errors
    /// Any [`PrivateCodecError`].
    pub fn new(params: PrivateCodecParams) -> Result<Self, PrivateCodecError> {
        check(&params)?;
        let dimension = if params.rotate { padded(params.parameters) } else { params.parameters };
        let count_share = match params.count_noise {
            None => 0.0,
            Some(count_noise) => {
                let share = params.noise_multiplier / (2.0 * count_noise);
                if share >= 0.9 {
                    let (z, most) = (params.noise_multiplier, 1.8 * count_noise);
                    return Err(PrivateCodecError::CountNoise { z, count_noise, most });
                }
                share
            }
        };
        let longest = longest(&params, dimension, params.modulus_bits, params.max_cohort, count_share);
        let Some(units) = units_for(longest, dimension as u64) else {
            return Err(headroom(&params, dimension as u64, longest, count_share));
        };
        let units = units.min((SIGMA_UNITS_MAX / params.noise_multiplier).floor()).max(CLIP_UNITS_MIN);
        let length = inflated_sensitivity(units, dimension as u64);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below 2^62 and positive")]
        let square_max = (length * length).floor() as u64;
        // Joint length J: count_units = share * J, and J^2 = length^2 + count_units^2.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below 2^31 and positive")]
        let count_units = (count_share / (1.0 - count_share * count_share).sqrt() * length).round() as u32;
        let sensitivity =
            (square_max as f64 + f64::from(count_units) * f64::from(count_units)).sqrt() * (1.0 + f64::EPSILON);
        let sigma = Sigma::at_least(params.noise_multiplier * sensitivity)?;
        Ok(Self {
            params,
            dimension,
            clip_units: units,
            square_max,
            count_units,
            sensitivity,
            sigma,
            is_count_secret: false,
        })
    }

    /// The same where privacy rests on a draw that nobody knows: whether a sum is refused does not depend on how many updates
    /// it holds, only on how many there may be.
    #[must_use]
    pub fn with_secret_count(self) -> Self {
        Self { is_count_secret: true, ..self }
    }

    /// The parameters it was made of.
    #[must_use]
    pub fn params(&self) -> &PrivateCodecParams {
        &self.params
    }

    /// Words of an encoded update.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "an encoded update is never empty")]
    pub fn len(&self) -> usize {
        self.dimension + usize::from(self.params.count_noise.is_some())
    }

    /// Coordinates, as the accounts need them.
    #[must_use]
    pub fn dimension(&self) -> u64 {
        self.len() as u64
    }

    /// Largest L2 norm, in grid units, of what one participant adds to the sum: exact, rounding included.
    #[must_use]
    pub fn sensitivity(&self) -> f64 {
        self.sensitivity
    }

    /// Standard deviation that the noise in a sum must have at least, in grid units: the noise multiplier times the
    /// sensitivity, rounded up.
    #[must_use]
    pub fn sigma(&self) -> Sigma {
        self.sigma
    }

    /// Largest magnitude of a word of an encoded update, its noise not counted.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below 2^31 and positive")]
    pub fn input_bound(&self) -> u64 {
        self.sensitivity.floor() as u64
    }

    /// What is kept free in the modulus for the noise in a sum: it stays within, but for a probability below 2^-100.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below 2^31 and positive")]
    pub fn noise_margin(&self) -> u64 {
        tail(self.sigma.value() * self.params.noise_ceiling).floor() as u64
    }

    pub(super) fn coordinates(&self) -> usize {
        self.dimension
    }

    pub(super) fn square_max(&self) -> u64 {
        self.square_max
    }

    pub(super) fn count_units(&self) -> u32 {
        self.count_units
    }

    /// The word as a signed number.
    pub(super) fn centred(&self, word: u32) -> i64 {
        let half = i64::from(half(self.params.modulus_bits)) + 1;
        let word = i64::from(word);
        if word < half { word } else { word - 2 * half }
    }

    /// Grid units per 1.0 of an update in a round whose clipping norm is `clip`.
    #[must_use]
    pub fn scale(&self, clip: f64) -> f64 {
        self.clip_units / clip
    }

    /// How much rounding and the count make of the clipping norm: at least 1.
    #[must_use]
    pub fn inflation(&self) -> f64 {
        self.sensitivity / self.clip_units
    }

    /// Clips, weighs, scales, rotates and rounds one update. The noise of a distributed mechanism is added to the words
    /// afterwards, by [`NoiseSampler::add_to`](super::NoiseSampler::add_to), and before they are masked.
    ///
    /// # Errors
    /// Any [`PrivateEncodeError`]: nothing may be sent.
    pub fn encode<R: CryptoRng + ?Sized>(
        &self,
        update: &Update,
        clip: f64,
        rotation_seed: &[u8; 32],
        rng: &mut R,
    ) -> Result<QuantizedUpdate, PrivateEncodeError> {
        let expected = self.params.parameters;
        if update.delta.len() != expected {
            return Err(PrivateEncodeError::WrongLength { expected, got: update.delta.len() });
        }
        if !(clip.is_normal() && clip > 0.0) {
            return Err(PrivateEncodeError::Clip(clip));
        }
        let norm = clip::norm(&update.delta);
        if !norm.is_finite() {
            return Err(PrivateEncodeError::NotFinite { index: first_not_finite(&update.delta).unwrap_or_default() });
        }
        let weight = match u32::try_from(update.examples).unwrap_or(u32::MAX).min(self.params.max_weight) {
            0 => return Err(PrivateEncodeError::NoExamples),
            weight => f64::from(weight) / f64::from(self.params.max_weight),
        };
        let shrink = if norm > clip { clip / norm } else { 1.0 };
        let factor = shrink * weight * self.scale(clip);
        let mut values: Vec<f64> = update.delta.iter().map(|&value| f64::from(value) * factor).collect();
        values.resize(self.dimension, 0.0);
        if self.params.rotate {
            rotate(&mut values, rotation_seed);
        }
        let mut words = vec![0; self.len()];
        self.round(&values, &mut words[..self.dimension], rng);
        if let Some(count) = words.get_mut(self.dimension) {
            let units = i64::from(self.count_units);
            *count = self.word(if norm <= clip { units } else { -units });
        }
        Ok(QuantizedUpdate { words })
    }

    /// Rounds up with the probability of the fraction, to 2^-32, until the whole is short enough.
    fn round<R: CryptoRng + ?Sized>(&self, values: &[f64], words: &mut [u32], rng: &mut R) {
        const BLOCK: usize = 1024;
        let mut noise = [0_u8; 4 * BLOCK];
        for _ in 0..ROUNDINGS_MAX {
            let mut square = 0_u128;
            for (values, words) in values.chunks(BLOCK).zip(words.chunks_mut(BLOCK)) {
                let noise = &mut noise[..4 * values.len()];
                rng.fill_bytes(noise);
                for ((&value, word), &noise) in values.iter().zip(words).zip(noise.as_chunks::<4>().0) {
                    #[expect(clippy::cast_possible_truncation, reason = "below 2^63; digits past 2^-32 are dropped")]
                    let fixed = (value * 4_294_967_296.0) as i64;
                    let rounded = fixed.saturating_add(i64::from(u32::from_le_bytes(noise))) >> 32;
                    square += u128::from(rounded.unsigned_abs().pow(2));
                    *word = self.word(rounded);
                }
            }
            if square <= u128::from(self.square_max) {
                return;
            }
        }
        // Dropping fractions only shortens.
        for (&value, word) in values.iter().zip(words) {
            #[expect(clippy::cast_possible_truncation, reason = "below 2^31")]
            let truncated = value as i64;
            *word = self.word(truncated);
        }
    }

    /// Undoes scale and rotation and divides by the fixed denominator, rounded once to `f32`.
    ///
    /// # Errors
    /// Any [`PrivateDecodeError`]; a sum that honest participants and noise of twelve standard deviations cannot have
    /// produced is refused rather than published.
    pub fn decode(
        &self,
        sum: &NoisedSum,
        clip: f64,
        rotation_seed: &[u8; 32],
    ) -> Result<PrivateMean, PrivateDecodeError> {
        let bits = self.params.modulus_bits;
        if sum.words().len() != self.len() || sum.modulus_bits() != bits {
            return Err(PrivateDecodeError::Shape {
                expected: self.len(),
                got: sum.words().len(),
                expected_bits: bits,
                got_bits: sum.modulus_bits(),
            });
        }
        let participants = sum.participants();
        if participants > self.params.max_cohort {
            return Err(PrivateDecodeError::Participants { got: participants, most: self.params.max_cohort });
        }
        if !(clip.is_normal() && clip > 0.0) {
            return Err(PrivateDecodeError::Clip(clip));
        }
        let counted = if self.is_count_secret { self.params.max_cohort } else { participants };
        let most = f64::from(counted) * self.sensitivity + tail(self.sigma.value() * self.params.noise_ceiling);
        let mut values: Vec<f64> = sum.words().iter().map(|&word| lift(word, bits)).collect();
        if let Some(index) = values.iter().position(|value| value.abs() > most) {
            return Err(PrivateDecodeError::OutOfRange { index, participants });
        }
        let within_clip = self.params.count_noise.map(|_| {
            let count = values[self.dimension] / (2.0 * f64::from(self.count_units));
            count / self.params.expected_cohort + 0.5
        });
        values.truncate(self.dimension);
        if self.params.rotate {
            rotate_back(&mut values, rotation_seed);
        }
        let divisor = self.scale(clip) * self.params.expected_cohort * self.params.expected_weight;
        #[expect(clippy::cast_possible_truncation, reason = "one rounding to f32 is meant")]
        let delta = values[..self.params.parameters].iter().map(|value| (value / divisor) as f32).collect();
        Ok(PrivateMean { delta, within_clip })
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "reduction modulo 2^32 is meant")]
    fn word(&self, value: i64) -> u32 {
        value as u32 & (u32::MAX >> (32 - u32::from(self.params.modulus_bits)))
    }
}

fn lift(word: u32, modulus_bits: u8) -> f64 {
    let word = f64::from(word);
    if word > f64::from(half(modulus_bits)) { word - f64::from(half(modulus_bits)) * 2.0 - 2.0 } else { word }
}
