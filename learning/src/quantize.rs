//! Quantization to integer words and back: encodes one update, decodes the sum of many.
//!
//! Every upload is a vector of integers modulo 2^b, so sums are exact, masks hide the whole vector, and results are independent of the
//! order of arrival. [`Codec::new`] proves that the sum over a full cohort does not wrap.
//!
//! Layout of an encoded update: one word per parameter (weight times value), one word for the weight, then the limbs of each metric. With
//! `b` bits, cohort `n`, weight cap `W` and per-coordinate clip `C`: `B = floor((2^(b-1) - 1) / (n W))`, scale `s = B / C`, and a
//! participant of weight `w` encodes value `v` as `w s v`, clamped to `±w B` and rounded stochastically (down, plus one with the
//! probability of the fraction), so its expectation is exact. Multiplying by the weight before rounding keeps the error below one unit for
//! any weight.

mod decode;
mod error;
mod inspect;
pub(crate) mod limbs;
mod recombine;
mod words;

pub use decode::{MeanUpdate, SumTail};
pub use error::{DecodeError, EncodeError, HeadroomError};
pub use inspect::{ImplausibleUpdate, Inspector};
pub use limbs::{MAX_COUNT as MAX_METRIC_COUNT, MAX_VALUE as MAX_METRIC_VALUE};
pub use words::{MAX_COHORT, MIN_LEVELS};

use rand::Rng;
use serde::{Deserialize, Serialize};

use crate::clip::{self, FixedClip};
use crate::metrics::MAX_METRICS;
use crate::parameters::{MAX_PARAMETERS, WrongLength, first_not_finite};
use crate::update::Update;
use crate::vectorized::vectorized;
use limbs::Limbs;
pub(crate) use words::{half, lift, to_word};

/// Quantization terms agreed on by both sides before a round; part of the task.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuantizationParams {
    /// Length of the shared layout, 1 to 2^28.
    pub parameters: usize,
    /// `b`: words are integers modulo 2^b; 16 to 32.
    pub modulus_bits: u8,
    /// `C`: coordinates are clamped to `±C`; finite, above 0.
    pub clip_range: f32,
    /// Bound on the L2 norm of an update, if any.
    #[serde(default)]
    pub clip_norm: Option<f32>,
    /// `W`: cap on an update's weight, in examples; 1 makes the mean unweighted.
    pub max_weight: u32,
    /// `n`: maximum number of updates in one sum, 1 to [`MAX_COHORT`].
    pub max_cohort: u32,
    /// Number of metrics in every update, at most [`MAX_METRICS`].
    pub metrics: usize,
}

/// An encoded update: words below 2^b. Private to its participant until masked or, without masks, until sent.
#[derive(Clone, PartialEq, Eq)]
pub struct QuantizedUpdate {
    /// The encoded vector: [`Codec::len`] words.
    pub words: Vec<u32>,
}

/// Shows the length only: an update in a log would be a leak.
impl std::fmt::Debug for QuantizedUpdate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QuantizedUpdate").field("words", &self.words.len()).finish_non_exhaustive()
    }
}

/// Parameters with proven headroom, and the constants derived from them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Codec {
    params: QuantizationParams,
    clip: Option<FixedClip>,
    /// `B`, see [`Codec::levels`].
    levels: u32,
    limbs: Limbs,
}

impl Codec {
    /// Checks the parameters and proves that `n W B <= 2^(b-1) - 1`, so that sums cannot wrap.
    ///
    /// # Errors
    /// Any [`HeadroomError`].
    pub fn new(params: QuantizationParams) -> Result<Self, HeadroomError> {
        let QuantizationParams { parameters, modulus_bits, clip_range, max_weight, max_cohort, metrics, .. } = params;
        if parameters == 0 || parameters as u64 > MAX_PARAMETERS {
            return Err(HeadroomError::Parameters(parameters));
        }
        if !(16..=32).contains(&modulus_bits) {
            return Err(HeadroomError::ModulusBits(modulus_bits));
        }
        if !clip_range.is_normal() || clip_range < 0.0 {
            return Err(HeadroomError::ClipRange(clip_range));
        }
        if max_weight == 0 {
            return Err(HeadroomError::MaxWeight);
        }
        if max_cohort == 0 || max_cohort > MAX_COHORT {
            return Err(HeadroomError::MaxCohort(max_cohort));
        }
        if metrics > MAX_METRICS {
            return Err(HeadroomError::Metrics(metrics));
        }
        let clip = params.clip_norm.map(FixedClip::new).transpose()?;
        let levels = u64::from(half(modulus_bits)) / (u64::from(max_weight) * u64::from(max_cohort));
        // At most `half`, which is below 2^31.
        let levels = u32::try_from(levels).unwrap_or(u32::MAX);
        if levels < MIN_LEVELS {
            return Err(HeadroomError::too_few_levels(levels, modulus_bits, max_weight, max_cohort));
        }
        Ok(Self { params, clip, levels, limbs: Limbs::new(modulus_bits, max_cohort) })
    }

    /// The parameters it was made of.
    #[must_use]
    pub fn params(&self) -> &QuantizationParams {
        &self.params
    }

    /// Number of words in an encoded update: parameters, weight, metrics.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "an encoded update is never empty")]
    pub fn len(&self) -> usize {
        self.params.parameters + 1 + self.params.metrics * self.limbs.per_metric()
    }

    /// `B`: levels on each side of zero at weight 1; at least [`MIN_LEVELS`].
    #[must_use]
    pub fn levels(&self) -> u32 {
        self.levels
    }

    pub(crate) fn limbs(&self) -> Limbs {
        self.limbs
    }

    /// `s = B / C`: units per 1.0 at weight 1.
    #[must_use]
    pub fn scale(&self) -> f64 {
        f64::from(self.levels) / f64::from(self.params.clip_range)
    }

    /// Largest magnitude of a word of one encoded update, read as a signed number.
    #[must_use]
    pub fn input_bound(&self) -> u64 {
        // The weight itself is at most W, and B is at least 1.
        let values = u64::from(self.levels) * u64::from(self.params.max_weight);
        if self.params.metrics == 0 { values } else { values.max(self.limbs.largest()) }
    }

    /// Clips, weights and rounds an update, in this order. `rng` decides the rounding only. Unless a seed has to be repeated, use a
    /// cryptographic generator: rounding helps to hide a value.
    ///
    /// # Errors
    /// Any [`EncodeError`]. The participant keeps the error to itself and sends nothing.
    pub fn encode(&self, update: &Update, rng: &mut impl Rng) -> Result<QuantizedUpdate, EncodeError> {
        let expected = self.params.parameters;
        if update.delta.len() != expected {
            return Err(WrongLength { expected, got: update.delta.len() }.into());
        }
        if update.metrics.len() != self.params.metrics {
            return Err(EncodeError::MetricCount { expected: self.params.metrics, got: update.metrics.len() });
        }
        let norm = clip::norm(&update.delta);
        if !norm.is_finite() {
            let index = first_not_finite(&update.delta).unwrap_or_default();
            return Err(EncodeError::NotFinite { index });
        }
        let weight = match u32::try_from(update.examples).unwrap_or(u32::MAX).min(self.params.max_weight) {
            0 => return Err(EncodeError::NoExamples),
            weight => weight,
        };
        let mut words = vec![0; self.len()];
        let (values, rest) = words.split_at_mut(expected);
        let factor = self.clip.map_or(1.0, |clip| clip.factor(norm));
        self.round(&update.delta, factor, weight, values, rng);
        let (weight_word, metric_words) = rest.split_at_mut(1);
        weight_word[0] = weight;
        for (index, (metric, words)) in
            update.metrics.iter().zip(metric_words.chunks_exact_mut(self.limbs.per_metric())).enumerate()
        {
            if metric.count > 0 && !metric.value.is_finite() {
                return Err(EncodeError::MetricNotFinite { index });
            }
            self.limbs.split(*metric, self.mask(), words);
        }
        Ok(QuantizedUpdate { words })
    }

    /// Clamps, weights and rounds: `x = factor * w * s * v` within `±w B`, as fixed point with 32 fractional bits.
    /// Adding 32 random bits and dropping the fraction rounds up with exactly the probability of the fraction. Random
    /// bits are drawn lazily: the first eight decide whether the fraction overflows except once in 256 times.
    fn round(&self, delta: &[f32], factor: f64, weight: u32, words: &mut [u32], rng: &mut impl Rng) {
        // w B <= W B <= 2^31 - 1, exact; the fixed point value stays below 2^63.
        let limit = f64::from(weight) * f64::from(self.levels);
        let scale = factor * (limit / f64::from(self.params.clip_range));
        let mask = self.mask();
        let (mut noise, mut sums, mut unsure) = ([0_u8; BLOCK], [0_u64; BLOCK], [false; BLOCK / LINE]);
        for (values, words) in delta.chunks(BLOCK).zip(words.chunks_mut(BLOCK)) {
            let (noise, sums) = (&mut noise[..values.len()], &mut sums[..values.len()]);
            rng.fill_bytes(noise);
            vectorized(
                #[inline(always)]
                || {
                    for ((sum, &value), &noise) in sums.iter_mut().zip(values).zip(&*noise) {
                        // Not `clamp`: the check of its bounds would stay in the loop.
                        let exact = (f64::from(value) * scale).min(limit).max(-limit);
                        *sum = fixed(exact).wrapping_add(u64::from(noise) << 24);
                    }
                },
            );
            vectorized(
                #[inline(always)]
                || {
                    for (word, &sum) in words.iter_mut().zip(&*sums) {
                        *word = rounded(sum, mask);
                    }
                    for (unsure, line) in unsure.iter_mut().zip(sums.chunks(LINE)) {
                        *unsure = line.iter().fold(false, |any, &sum| any | is_unsure(sum));
                    }
                },
            );
            for ((sums, words), _) in sums.chunks(LINE).zip(words.chunks_mut(LINE)).zip(unsure).filter(|(_, any)| *any)
            {
                for (&sum, word) in sums.iter().zip(words).filter(|(sum, _)| is_unsure(**sum)) {
                    *word = rounded(sum.wrapping_add(u64::from(rng.next_u32() >> 8)), mask);
                }
            }
        }
    }

    pub(crate) fn mask(&self) -> u32 {
        u32::MAX >> (32 - u32::from(self.params.modulus_bits))
    }
}

/// Number of values per draw of random bits.
const BLOCK: usize = 1024;
/// Number of values searched at once for an unrounded one.
const LINE: usize = 32;

/// The integer part of a fixed-point number.
#[inline(always)]
fn rounded(sum: u64, mask: u32) -> u32 {
    to_word((sum >> 32).cast_signed(), mask)
}

/// Whether the random bits not drawn yet could carry into the integer part.
#[inline(always)]
fn is_unsure(sum: u64) -> bool {
    (sum >> 24) & 0xff == 0xff
}

/// Converts a number below 2^31 to fixed point with 32 fractional bits, to nearest, in two's complement.
///
/// Processors lack a vector instruction for the conversion to 64 bits, so it is composed of steps that they have:
/// adding 1.5 * 2^52 to a number below 2^51 leaves the nearest integer in the low bits of the sum.
#[inline(always)]
fn fixed(value: f64) -> u64 {
    const SHIFT: f64 = 6_755_399_441_055_744.0;
    let bits = |shifted: f64| shifted.to_bits().wrapping_sub(SHIFT.to_bits());
    let integer = value + SHIFT;
    let fraction = (value - (integer - SHIFT)) * 4_294_967_296.0;
    (bits(integer) << 32).wrapping_add(bits(fraction + SHIFT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fixed_point_is_the_nearest() {
        let unit = 2.0_f64.powi(-32);
        let most = 2.0_f64.powi(31) - 1.0;
        let near = [0.0, unit, 0.5, 1.0 - unit, 1.0, 12_345.678_9, most];
        let between = (0..1000).map(|i| most * (f64::from(i) / 1000.0).powi(9));
        for value in near.into_iter().chain(between).flat_map(|value| [value, -value, value + 0.5 * unit]) {
            #[expect(clippy::cast_possible_truncation, reason = "whole and below 2^63")]
            let nearest = (value / unit).round_ties_even() as i64;
            assert_eq!(fixed(value).cast_signed(), nearest, "{value}");
        }
    }
}
