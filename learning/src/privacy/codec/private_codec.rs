//! Quantization to integer words and back for tasks in which a privacy mechanism adds noise to the sum.
//!
//! It differs from [`Codec`](crate::Codec) in what a sum may reveal. The L2 norm of each participant's contribution is
//! bounded *in integers*, after rounding: clip, weight, scale, optionally rotate, then round stochastically until the
//! integer vector is within the bound (conditional rounding, Kairouz, Liu, Steinke 2021). The weight is a factor of at
//! most 1 on the clipped update and the mean has a fixed denominator, so the sum reveals neither the number of
//! participants nor the amount of data; metrics are not sent. All coordinates get the same noise. If the clip adapts,
//! one more coordinate reports whether the update was within the norm.
//!
//! The grid is fixed for a task: an update of exactly the clipping norm has a length of `clip_units` grid units,
//! whatever the norm is in a round. So sensitivity and noise are those of integers and do not change with the clip.

mod decode;
mod error;
mod grid;

pub use decode::PrivateDecoder;
pub use error::{PrivateCodecError, PrivateDecodeError, PrivateEncodeError};
pub(in crate::privacy) use grid::CLIP_UNITS_MIN;
pub use grid::PrivateCodecParams;

use grid::{check, half, headroom, longest, tail, units_for};
use rand::CryptoRng;

use super::rotation::{padded, rotate};
use crate::clip;
use crate::parameters::first_not_finite;
use crate::privacy::accountant::inflated_sensitivity;
use crate::privacy::mechanisms::discrete_gaussian::Sigma;
use crate::quantize::QuantizedUpdate;
use crate::update::Update;

/// The decoded mean of a noised sum.
#[derive(Clone, Debug, PartialEq)]
pub struct PrivateMean {
    /// The sum of the clipped, weighted deltas over the fixed denominator.
    pub delta: Vec<f32>,
    /// If the clip adapts: estimated share of the expected participants with a norm within it; noise may push it below 0 or above 1.
    pub within_clip: Option<f64>,
}

/// Parameters with proven headroom, and the grid derived from them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PrivateCodec {
    params: PrivateCodecParams,
    /// Coordinates of the update, padding included.
    dimension: usize,
    /// `A`: length, in grid units, of an update of exactly the clipping norm.
    clip_units: f64,
    /// Maximum squared length of a rounded update.
    square_max: u64,
    /// Magnitude of the count's coordinate.
    count_units: u32,
    sensitivity: f64,
    sigma: Sigma,
    /// Whether all results must be independent of the number of updates in a sum.
    is_count_secret: bool,
}

/// Noise width, in grid units, beyond which a finer grid is useless.
const SIGMA_UNITS_MAX: f64 = 4_194_304.0;
/// Attempts before rounding falls back to truncation, which is never too long; each attempt succeeds with probability
/// of at least two in five.
const ROUNDINGS_MAX: u32 = 100;

impl PrivateCodec {
    /// Checks the parameters and chooses the grid so that the sum of a full cohort plus noise of twelve standard
    /// deviations cannot wrap; with `wrap_sigmas` it rarely wraps.
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

    /// The same codec for tasks whose privacy relies on a secret draw: whether a sum is rejected depends on the maximum
    /// number of updates only, not on the actual one.
    #[must_use]
    pub fn with_secret_count(self) -> Self {
        Self { is_count_secret: true, ..self }
    }

    #[must_use]
    pub fn params(&self) -> &PrivateCodecParams {
        &self.params
    }

    /// Number of words in an encoded update.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "an encoded update is never empty")]
    pub fn len(&self) -> usize {
        self.dimension + usize::from(self.params.count_noise.is_some())
    }

    /// Number of coordinates, as accountants need it.
    #[must_use]
    pub fn dimension(&self) -> u64 {
        self.len() as u64
    }

    /// Maximum L2 norm, in grid units, of one participant's contribution to the sum; exact, rounding included.
    #[must_use]
    pub fn sensitivity(&self) -> f64 {
        self.sensitivity
    }

    /// Least standard deviation of the noise in a sum, in grid units: the noise multiplier times the sensitivity,
    /// rounded up.
    #[must_use]
    pub fn sigma(&self) -> Sigma {
        self.sigma
    }

    /// Largest magnitude of a word of an encoded update, without its noise.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below 2^31 and positive")]
    pub fn input_bound(&self) -> u64 {
        self.sensitivity.floor() as u64
    }

    /// Headroom of the modulus for the noise in a sum; exceeded with a probability below 2^-100.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below 2^31 and positive")]
    pub fn noise_margin(&self) -> u64 {
        tail(self.sigma.value() * self.params.noise_ceiling).floor() as u64
    }

    pub(in crate::privacy) fn coordinates(&self) -> usize {
        self.dimension
    }

    pub(super) fn square_max(&self) -> u64 {
        self.square_max
    }

    pub(super) fn count_units(&self) -> u32 {
        self.count_units
    }

    /// The word as a signed number.
    pub(in crate::privacy) fn centred(&self, word: u32) -> i64 {
        let half = i64::from(half(self.params.modulus_bits)) + 1;
        let word = i64::from(word);
        if word < half { word } else { word - 2 * half }
    }

    /// Grid units per 1.0 of an update in a round whose clipping norm is `clip`.
    #[must_use]
    pub fn scale(&self, clip: f64) -> f64 {
        self.clip_units / clip
    }

    /// Factor by which rounding and the count increase the sensitivity over the clipping norm; at least 1.
    #[must_use]
    pub fn inflation(&self) -> f64 {
        self.sensitivity / self.clip_units
    }

    /// Clips, weights, scales, rotates and rounds an update. A distributed mechanism then adds its noise to the words,
    /// with [`NoiseSampler::add_to`](crate::privacy::NoiseSampler::add_to), before they are masked.
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
        // Allocated with its padding: a growing vector temporarily needs twice the memory.
        let mut values = Vec::with_capacity(self.dimension);
        values.extend(update.delta.iter().map(|&value| f64::from(value) * factor));
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

    /// Rounds up with the probability of the fraction, to 2^-32, until the vector is short enough.
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
        // Truncation only shortens.
        for (&value, word) in values.iter().zip(words) {
            #[expect(clippy::cast_possible_truncation, reason = "below 2^31")]
            let truncated = value as i64;
            *word = self.word(truncated);
        }
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "reduction modulo 2^32 is meant")]
    fn word(&self, value: i64) -> u32 {
        value as u32 & (u32::MAX >> (32 - u32::from(self.params.modulus_bits)))
    }
}
