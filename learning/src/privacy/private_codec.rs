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

use rand::CryptoRng;

use super::NoisedSum;
use super::accountant::inflated_sensitivity;
use super::discrete_gaussian::{BadSigma, Sigma};
use super::rotation::{padded, rotate, rotate_back};
use crate::clip;
use crate::parameters::{MAX_PARAMETERS, first_not_finite};
use crate::quantize::QuantizedUpdate;
use crate::update::Update;

/// Cohorts that can be planned for. Those that run are at most [`MAX_COHORT`](crate::quantize::MAX_COHORT), which tasks see to.
const HYPOTHETICAL_COHORT_MAX: u32 = 1 << 28;

/// What both sides agree on before a round; derived from the task.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PrivateCodecParams {
    /// Length of the shared layout, 1 to 2^28.
    pub parameters: usize,
    /// Words are integers modulo 2^b, 16 to 32.
    pub modulus_bits: u8,
    /// Most updates one sum may hold.
    pub max_cohort: u32,
    /// Noise in the sum over its L2 sensitivity, what the accounts are made of.
    pub noise_multiplier: f64,
    /// How much larger than that the standard deviation of the noise in a sum may turn out: shares of more survivors than
    /// were counted on, nodes of a tree. At least 1.
    pub noise_ceiling: f64,
    /// Whether updates are rotated.
    pub rotate: bool,
    /// Where bits are scarce and updates are rotated: room for so many standard deviations of a coordinate of the rotated
    /// sum (the paper's `k`, 4) instead of room for whatever happens. Wrapping then spoils a coordinate now and then, which
    /// costs utility, never privacy.
    pub wrap_sigmas: Option<f64>,
    /// Standard deviation of the noise on the count of updates within the norm, where the clip adapts.
    pub count_noise: Option<f64>,
    /// More examples than these do not weigh more; 1 gives everybody the same weight.
    pub max_weight: u32,
    /// How many participants a round is expected to have: fixed for the task, never counted.
    pub expected_cohort: f64,
    /// What a participant is expected to weigh, over `max_weight`: above 0, at most 1.
    pub expected_weight: f64,
}

/// Why a codec cannot be.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PrivateCodecError {
    /// Something out of its range.
    #[error("{name} must be {range}, not {value}")]
    Range {
        /// Which parameter.
        name: &'static str,
        /// What it must be.
        range: &'static str,
        /// What it is.
        value: f64,
    },
    /// Rounding would drown the update, or the noise the modulus.
    #[error(
        "sums of {max_cohort} updates and their noise leave {units:.1} grid units for an update's length modulo \
         2^{modulus_bits}, and rounding {dimension} coordinates adds {rounding:.1}: {remedy}"
    )]
    Headroom {
        /// As asked for.
        max_cohort: u32,
        /// As asked for.
        modulus_bits: u8,
        /// Coordinates, padding included.
        dimension: u64,
        /// Longest integer vector that leaves headroom.
        units: f64,
        /// What rounding adds to it.
        rounding: f64,
        /// What would do.
        remedy: String,
    },
    /// The count's noise takes up everything.
    #[error(
        "an adaptive clip needs a noise multiplier below {most:.3} with {count_noise:.3} of noise on the count, not {z:.3}: a \
         larger cohort would do"
    )]
    CountNoise {
        /// As asked for.
        z: f64,
        /// As asked for.
        count_noise: f64,
        /// Largest multiplier.
        most: f64,
    },
    /// Noise that cannot be drawn.
    #[error(transparent)]
    Sigma(#[from] BadSigma),
}

/// Why an update is not sent: a local matter of the participant.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PrivateEncodeError {
    /// A delta of another model.
    #[error("the update has {got} parameters where the task has {expected}")]
    WrongLength {
        /// The task's.
        expected: usize,
        /// The update's.
        got: usize,
    },
    /// Training diverged; the norm is not a number either.
    #[error("value {index} of the update is NaN or infinite; a smaller learning rate may help")]
    NotFinite {
        /// The first such position in the shared layout.
        index: usize,
    },
    /// An update of nothing.
    #[error("the update was trained on no examples")]
    NoExamples,
    /// No bound to clip to.
    #[error("the clipping norm must be finite and above 0, not {0}")]
    Clip(f64),
}

/// Why a noised sum has no mean.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PrivateDecodeError {
    /// A sum of another task.
    #[error("the sum has {got} words modulo 2^{got_bits} where the task has {expected} modulo 2^{expected_bits}")]
    Shape {
        /// The codec's words.
        expected: usize,
        /// The sum's.
        got: usize,
        /// The codec's modulus.
        expected_bits: u8,
        /// The sum's.
        got_bits: u8,
    },
    /// More updates than there is room for.
    #[error("the sum holds {got} updates; at most {most} leave headroom")]
    Participants {
        /// The sum's.
        got: u32,
        /// The codec's.
        most: u32,
    },
    /// Beyond what these participants and any plausible noise add up to.
    #[error("value {index} of the sum is beyond what {participants} updates and their noise add up to")]
    OutOfRange {
        /// Position in the encoded vector.
        index: usize,
        /// How many there were.
        participants: u32,
    },
    /// No bound that was clipped to.
    #[error("the clipping norm must be finite and above 0, not {0}")]
    Clip(f64),
}

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

/// Fewest grid units for an update of the clipping norm; nor fewer than rounding adds.
pub(super) const CLIP_UNITS_MIN: f64 = 16.0;
/// More levels than these serve nothing: rounding is far below the noise.
const CLIP_UNITS_MAX: f64 = 1_048_576.0;
/// Nor does a grid on which the noise is wider than this.
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

fn check(params: &PrivateCodecParams) -> Result<(), PrivateCodecError> {
    let cohort = f64::from(params.max_cohort);
    let checks = [
        ("parameters", "1 to 2^28", params.parameters as f64, 1.0..=MAX_PARAMETERS as f64),
        ("modulus_bits", "16 to 32", f64::from(params.modulus_bits), 16.0..=32.0),
        ("max_cohort", "1 to 2^28", cohort, 1.0..=f64::from(HYPOTHETICAL_COHORT_MAX)),
        ("noise_multiplier", "between 0.001 and 10000", params.noise_multiplier, 1e-3..=1e4),
        ("noise_ceiling", "at least 1", params.noise_ceiling, 1.0..=1e4),
        ("count_noise", "between 0.1 and 10000", params.count_noise.unwrap_or(1.0), 0.1..=1e4),
        ("wrap_sigmas", "between 3 and 100", params.wrap_sigmas.unwrap_or(4.0), 3.0..=100.0),
        ("max_weight", "at least 1", f64::from(params.max_weight), 1.0..=f64::from(u32::MAX)),
        ("expected_cohort", "above 0 and at most max_cohort", params.expected_cohort, f64::MIN_POSITIVE..=cohort),
        ("expected_weight", "above 0 and at most 1", params.expected_weight, f64::MIN_POSITIVE..=1.0),
    ];
    match checks.into_iter().find(|(_, _, value, range_of)| !range_of.contains(value)) {
        Some((name, range, value, _)) => Err(PrivateCodecError::Range { name, range, value }),
        None => Ok(()),
    }
}

/// Longest integer vector that a full cohort can add up: `n J + 12 sigma + 48` must stay within half of the modulus, where
/// `sigma = z J` and the joint length `J` covers the count's coordinate. With `k = wrap_sigmas` instead
/// `k sqrt(n^2 J^2 / D + n / 4 + sigma^2)` must (Kairouz, Liu, Steinke 2021, section 5), and the count, which is not rotated,
/// must fit as above.
fn longest(params: &PrivateCodecParams, dimension: usize, modulus_bits: u8, max_cohort: u32, count_share: f64) -> f64 {
    let noise = params.noise_multiplier * params.noise_ceiling;
    let (half, cohort) = (f64::from(half(modulus_bits)), f64::from(max_cohort));
    let joint = match params.wrap_sigmas.filter(|_| params.rotate) {
        None => (half - 48.0) / (cohort + 12.0 * noise),
        Some(sigmas) => {
            let room = half * half / (sigmas * sigmas) - 0.25 * cohort;
            let spread = (room / (cohort * cohort / dimension as f64 + noise * noise)).sqrt();
            let count = (half - 48.0) / (cohort * count_share + 12.0 * noise);
            if count_share > 0.0 { spread.min(count) } else { spread }
        }
    };
    joint * (1.0 - count_share * count_share).sqrt() - 1.0
}

/// Most grid units that rounding leaves no longer than `longest`; nothing if those are too few to be worth it.
fn units_for(longest: f64, dimension: u64) -> Option<f64> {
    let root = (dimension as f64).sqrt();
    // The two bounds of `inflated_sensitivity`, solved; the square root is not a number where the second never holds.
    let probable = (0.25 + longest * longest - 0.25 * dimension as f64 - 0.5 * root).sqrt() - 0.5;
    let units = probable.max(longest - root).min(CLIP_UNITS_MAX).floor();
    let rounding = inflated_sensitivity(units.max(0.0), dimension) - units;
    (units >= CLIP_UNITS_MIN && units >= rounding).then_some(units)
}

fn headroom(params: &PrivateCodecParams, dimension: u64, longest_now: f64, count_share: f64) -> PrivateCodecError {
    let padded = usize::try_from(dimension).unwrap_or(usize::MAX);
    let fits = |bits, cohort| units_for(longest(params, padded, bits, cohort, count_share), dimension).is_some();
    let bits = (params.modulus_bits..=32).find(|&bits| fits(bits, params.max_cohort));
    let cohort = (0..16).map(|halvings| params.max_cohort >> halvings).find(|&n| n > 0 && fits(params.modulus_bits, n));
    let remedy = match (bits, cohort) {
        (Some(bits), Some(cohort)) => format!("modulus_bits {bits} or a cohort of at most {cohort} would do"),
        (Some(bits), None) => format!("modulus_bits {bits} would do"),
        (None, Some(cohort)) => format!("a cohort of at most {cohort} would do"),
        (None, None) => "no modulus of 32 bits has room for this model with so much noise".to_owned(),
    };
    PrivateCodecError::Headroom {
        max_cohort: params.max_cohort,
        modulus_bits: params.modulus_bits,
        dimension,
        units: longest_now.max(0.0),
        rounding: inflated_sensitivity(0.0, dimension),
        remedy,
    }
}

/// What noise of this standard deviation exceeds with a probability below 2^-100: Bernstein's bound with twelve standard
/// deviations, which covers Skellam noise too.
fn tail(sigma: f64) -> f64 {
    24.0 + (576.0 + 144.0 * sigma * sigma).sqrt()
}

fn half(modulus_bits: u8) -> u32 {
    u32::MAX >> (33 - u32::from(modulus_bits))
}

fn lift(word: u32, modulus_bits: u8) -> f64 {
    let word = f64::from(word);
    if word > f64::from(half(modulus_bits)) { word - f64::from(half(modulus_bits)) * 2.0 - 2.0 } else { word }
}
