//! Skellam noise: the difference of two Poisson draws, drawn exactly.
//!
//! Sums of independent Skellam draws are Skellam again, with the sum of the variances, so the sum of the participants'
//! noise has a known distribution (Agarwal, Kairouz, Liu 2021). Poisson draws use rejection from a step function, see
//! `sample`; the weight at `k` is the product of `mu / j` between the mode and `k`, which integers can
//! compute.

use rand::CryptoRng;
use serde::{Deserialize, Serialize};

use crate::privacy::sample::fixed::Fixed;
use crate::privacy::sample::majorant::{Majorant, Weight};

/// Smallest variance of Skellam noise.
pub const VARIANCE_MIN: f64 = 1.0 / 4096.0;
/// Largest variance of Skellam noise: 2^44.
pub const VARIANCE_MAX: f64 = 17_592_186_044_416.0;
const FRACTION_BITS: u32 = 16;

/// A variance as a rational number, so that samplers and accountants use the same value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct Variance {
    /// In units of 2^-16.
    units: u64,
}

/// A variance that cannot be sampled.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("a variance of Skellam noise must be between {VARIANCE_MIN} and {VARIANCE_MAX}, not {0}")]
pub struct BadVariance(pub f64);

impl Variance {
    /// The smallest multiple of 2^-16 that is not below `variance`.
    ///
    /// # Errors
    /// [`BadVariance`] unless it lies between [`VARIANCE_MIN`] and [`VARIANCE_MAX`].
    pub fn at_least(variance: f64) -> Result<Self, BadVariance> {
        if !(VARIANCE_MIN..=VARIANCE_MAX).contains(&variance) {
            return Err(BadVariance(variance));
        }
        // At most 2^60; scaling by a power of two is exact, and so is rounding up what has no fraction left.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "1 to 2^60")]
        let units = (variance * (1_u64 << FRACTION_BITS) as f64).ceil() as u64;
        Ok(Self { units })
    }

    /// Its value, to the nearest f64.
    #[must_use]
    pub fn value(self) -> f64 {
        self.units as f64 / (1_u64 << FRACTION_BITS) as f64
    }
}

impl TryFrom<u64> for Variance {
    type Error = BadVariance;

    fn try_from(units: u64) -> Result<Self, BadVariance> {
        let variance = Self { units };
        if units <= 1 << 60 && variance.value() >= VARIANCE_MIN {
            Ok(variance)
        } else {
            Err(BadVariance(variance.value()))
        }
    }
}

impl From<Variance> for u64 {
    fn from(variance: Variance) -> Self {
        variance.units
    }
}

/// A sampler for one variance.
#[derive(Clone, Debug)]
pub struct Skellam {
    variance: Variance,
    poisson: Majorant<PoissonWeight>,
}

impl Skellam {
    /// Precomputes the step functions of two Poisson distributions, each with half the variance.
    #[must_use]
    pub fn new(variance: Variance) -> Self {
        Self { variance, poisson: Majorant::new(PoissonWeight::half_of(variance)) }
    }

    /// The variance of a draw.
    #[must_use]
    pub fn variance(&self) -> Variance {
        self.variance
    }

    #[inline]
    #[must_use]
    pub fn sample<R: CryptoRng + ?Sized>(&self, rng: &mut R) -> i64 {
        self.poisson.sample(rng) - self.poisson.sample(rng)
    }
}

/// `P(k) / P(mode)` for the mean `units / DENOMINATOR`.
#[derive(Clone, Copy, Debug)]
struct PoissonWeight {
    units: u64,
    mean: f64,
    mode: i64,
    /// ln P(mode).
    peak: f64,
}

/// Twice the variance's: the mean is half of it.
const DENOMINATOR: u64 = 1 << (FRACTION_BITS + 1);

impl PoissonWeight {
    fn half_of(variance: Variance) -> Self {
        let units = variance.units;
        let mode = (units / DENOMINATOR).cast_signed();
        let mean = units as f64 / DENOMINATOR as f64;
        let mut weight = Self { units, mean, mode, peak: 0.0 };
        weight.peak = weight.ln_probability(mode);
        weight
    }

    /// `ln P(k)` for `k` at least 0, by Loader's saddle-point expansion, in which no two large terms cancel.
    fn ln_probability(&self, k: i64) -> f64 {
        let count = k as f64;
        if k < 16 {
            let factorial: f64 = (1..=k).map(|j| j as f64).product();
            return count * libm::log(self.mean) - self.mean - libm::log(factorial);
        }
        // Exact but for one rounding: k - mean.
        let excess = (i128::from(k) * i128::from(DENOMINATOR) - i128::from(self.units)) as f64 / DENOMINATOR as f64;
        -stirling_error(count)
            - self.mean * phi(excess / self.mean)
            - 0.5 * libm::log(2.0 * std::f64::consts::PI * count)
    }
}

/// `ln k! - ln(sqrt(2 pi k) (k / e)^k)`, for k from 16 on.
fn stirling_error(k: f64) -> f64 {
    let square = k * k;
    (1.0 / 12.0 - (1.0 / 360.0 - (1.0 / 1260.0 - 1.0 / 1680.0 / square) / square) / square) / k
}

/// `(1 + d) ln(1 + d) - d`.
fn phi(d: f64) -> f64 {
    if d.abs() > 0.125 {
        return (1.0 + d) * libm::log1p(d) - d;
    }
    // d^2/2 - d^3/6 + d^4/12 - ...: sixteen terms leave less than 2^-48 of it.
    let series = (2..18).rev().fold(0.0, |sum, n| {
        let n = f64::from(n);
        1.0 / (n * (n - 1.0)) - d * sum
    });
    d * d * series
}

impl Weight for PoissonWeight {
    // The logarithm is off by less than 2^-34: a difference of terms below 800, each good to 2^-45 of itself.
    const GUARD: f64 = 1.0 / (1_u64 << 30) as f64;

    fn mode(&self) -> i64 {
        self.mode
    }

    fn lowest(&self) -> i64 {
        0
    }

    fn spread(&self) -> f64 {
        self.mean.sqrt()
    }

    fn estimate(&self, k: i64) -> f64 {
        if k < 0 { 0.0 } else { libm::exp(self.ln_probability(k) - self.peak).min(1.0) }
    }

    fn exact(&self, k: i64, limbs: usize) -> Fixed {
        if k < 0 {
            return Fixed::integer(0, limbs);
        }
        let mut weight = Fixed::integer(1, limbs);
        // Every factor is at most 1, so errors only add up. The largest k is below 2^44, so products fit.
        if k > self.mode {
            for j in self.mode + 1..=k {
                weight.scale(self.units, DENOMINATOR * j.unsigned_abs());
            }
        } else {
            for j in k + 1..=self.mode {
                weight.scale(DENOMINATOR * j.unsigned_abs(), self.units);
            }
        }
        weight
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variances_are_rounded_up_and_come_back() {
        for value in [1.0 / 4096.0, 0.25, 20.25, 1e6, 1e12, VARIANCE_MAX] {
            let variance = Variance::at_least(value).unwrap();
            assert!(variance.value() >= value && variance.value() <= value + 2e-5, "{value}");
            let json = serde_json::to_string(&variance).unwrap();
            assert_eq!(serde_json::from_str::<Variance>(&json).unwrap(), variance);
        }
        for bad in [0.0, -1.0, 1e-5, 2e13, f64::NAN] {
            assert!(Variance::at_least(bad).is_err(), "{bad}");
        }
        assert!(serde_json::from_str::<Variance>("0").is_err());
        assert!(serde_json::from_str::<Variance>("1152921504606846977").is_err());
    }

    #[test]
    #[expect(clippy::cast_possible_truncation, reason = "small numbers")]
    fn estimates_agree_with_exact_weights() {
        for variance in [0.25, 1.0, 30.0, 1e3, 1e6, 1e9] {
            let weight = PoissonWeight::half_of(Variance::at_least(variance).unwrap());
            assert_eq!(weight.estimate(weight.mode), 1.0);
            for t in [-30.0, -9.0, -3.0, -0.5, 0.1, 1.0, 5.0, 9.0, 25.0] {
                let k = weight.mode + (t * weight.spread()).round() as i64;
                let estimate = weight.estimate(k);
                let exact = weight.exact(k, 8).to_f64();
                let tolerance = exact * PoissonWeight::GUARD / 8.0 + 1e-140;
                assert!((estimate - exact).abs() <= tolerance, "{variance} {k}: {estimate} {exact}");
            }
        }
    }
}
