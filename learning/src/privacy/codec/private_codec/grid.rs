//! The codec's parameters, and an integer grid with headroom for them.

use super::error::PrivateCodecError;
use crate::parameters::MAX_PARAMETERS;
use crate::privacy::accountant::inflated_sensitivity;

/// Maximum cohort in plans. Actual cohorts are at most [`MAX_COHORT`](crate::quantize::MAX_COHORT), as enforced by tasks.
const HYPOTHETICAL_COHORT_MAX: u32 = 1 << 28;

/// Parameters agreed on by both sides before a round; derived from the task.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PrivateCodecParams {
    /// Length of the shared layout, 1 to 2^28.
    pub parameters: usize,
    /// Words are integers modulo 2^b, 16 to 32.
    pub modulus_bits: u8,
    /// Maximum number of updates in one sum.
    pub max_cohort: u32,
    /// Standard deviation of the noise in the sum over its L2 sensitivity; the input of the accountants.
    pub noise_multiplier: f64,
    /// Factor by which the actual standard deviation may exceed the minimum: more survivors than assumed add shares, or
    /// a tree adds nodes. At least 1.
    pub noise_ceiling: f64,
    /// Whether updates are rotated.
    pub rotate: bool,
    /// If bits are scarce and updates are rotated: headroom for this many standard deviations of a coordinate of the
    /// rotated sum (the paper's `k`, 4) instead of for the worst case. Occasional wrapping then spoils a coordinate,
    /// which costs utility, never privacy.
    pub wrap_sigmas: Option<f64>,
    /// If the clip adapts: standard deviation of the noise on the count of updates within the norm.
    pub count_noise: Option<f64>,
    /// Cap on the weight of an update, in examples; 1 makes the mean unweighted.
    pub max_weight: u32,
    /// Expected number of participants per round: fixed for the task, never counted.
    pub expected_cohort: f64,
    /// Expected weight of a participant, over `max_weight`: above 0, at most 1.
    pub expected_weight: f64,
}

/// Fewest grid units for an update of the clipping norm; rounding must not add more than that either.
pub(in crate::privacy) const CLIP_UNITS_MIN: f64 = 16.0;

/// More levels are useless: rounding is far below the noise.
const CLIP_UNITS_MAX: f64 = 1_048_576.0;

pub(super) fn check(params: &PrivateCodecParams) -> Result<(), PrivateCodecError> {
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

/// Length of the longest integer vector that a full cohort can sum: `n J + 12 sigma + 48` must stay within half of the
/// modulus, where `sigma = z J` and the joint length `J` includes the count's coordinate. With `k = wrap_sigmas`, `k
/// sqrt(n^2 J^2 / D + n / 4 + sigma^2)` must instead (Kairouz, Liu, Steinke 2021, section 5), and the count, which is
/// not rotated, must fit as above.
pub(super) fn longest(
    params: &PrivateCodecParams,
    dimension: usize,
    modulus_bits: u8,
    max_cohort: u32,
    count_share: f64,
) -> f64 {
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

/// The largest number of grid units with rounding within `longest`; `None` if that is too few.
pub(super) fn units_for(longest: f64, dimension: u64) -> Option<f64> {
    let root = (dimension as f64).sqrt();
    // The two bounds of `inflated_sensitivity`, solved; the square root is not a number where the second never holds.
    let probable = (0.25 + longest * longest - 0.25 * dimension as f64 - 0.5 * root).sqrt() - 0.5;
    let units = probable.max(longest - root).min(CLIP_UNITS_MAX).floor();
    let rounding = inflated_sensitivity(units.max(0.0), dimension) - units;
    (units >= CLIP_UNITS_MIN && units >= rounding).then_some(units)
}

pub(super) fn headroom(
    params: &PrivateCodecParams,
    dimension: u64,
    longest_now: f64,
    count_share: f64,
) -> PrivateCodecError {
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

/// Bound that noise of this standard deviation exceeds with a probability below 2^-100: Bernstein's bound at twelve
/// standard deviations, which covers Skellam noise too.
pub(super) fn tail(sigma: f64) -> f64 {
    24.0 + (576.0 + 144.0 * sigma * sigma).sqrt()
}

pub(super) fn half(modulus_bits: u8) -> u32 {
    u32::MAX >> (33 - u32::from(modulus_bits))
}
