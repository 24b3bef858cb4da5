//! The discrete Gaussian on the integers (Canonne, Kamath, Steinke 2020), drawn exactly.
//!
//! `P(x)` is proportional to `exp(-x^2 / (2 sigma^2))`. Added to an integer vector of L2 sensitivity `D` it is `D^2 /
//! (2 sigma^2)`-zCDP (their Theorem 4). Their sampler takes a dozen exact coin flips per draw; this one draws from the
//! same distribution by rejection from a step function, see `sample`.

use rand::CryptoRng;
use serde::{Deserialize, Serialize};

use crate::privacy::sample::fixed::{Fixed, exp_neg};
use crate::privacy::sample::majorant::{Majorant, Weight};

/// A standard deviation as a rational number, so that samplers and accountants use the same value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "(u64, u32)", into = "(u64, u32)")]
pub struct Sigma {
    /// In units of `2^-bits`.
    units: u64,
    bits: u32,
}

/// Smallest standard deviation; less is practically no noise on the integers.
pub const SIGMA_MIN: f64 = 1.0 / 64.0;
/// Largest standard deviation, beyond any modulus of 2^32.
pub const SIGMA_MAX: f64 = 4_294_967_296.0;
/// Significant bits of a [`Sigma`] that is above 2^11; below it has 20 fractional bits.
const UNIT_BITS: u32 = 31;
const FRACTION_BITS: u32 = 20;

/// A standard deviation that cannot be sampled.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("a standard deviation of integer noise must be between {SIGMA_MIN} and {SIGMA_MAX}, not {0}")]
pub struct BadSigma(pub f64);

impl Sigma {
    /// The smallest representable value at or above `sigma`: larger by at most one part in 2^14, or in 2^30 above 2^11.
    ///
    /// # Errors
    /// [`BadSigma`] unless `sigma` lies between [`SIGMA_MIN`] and [`SIGMA_MAX`].
    pub fn at_least(sigma: f64) -> Result<Self, BadSigma> {
        if !(SIGMA_MIN..=SIGMA_MAX).contains(&sigma) {
            return Err(BadSigma(sigma));
        }
        let mut bits = FRACTION_BITS;
        while bits > 0 && sigma * pow2(bits) >= pow2(UNIT_BITS) {
            bits -= 1;
        }
        // Scaling by a power of two is exact.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "1 to 2^32")]
        let units = (sigma * pow2(bits)).ceil() as u64;
        Ok(Self { units, bits })
    }

    #[must_use]
    pub fn value(self) -> f64 {
        self.units as f64 / pow2(self.bits)
    }
}

impl TryFrom<(u64, u32)> for Sigma {
    type Error = BadSigma;

    fn try_from((units, bits): (u64, u32)) -> Result<Self, BadSigma> {
        let sigma = Self { units, bits: bits.min(FRACTION_BITS) };
        let fits = bits <= FRACTION_BITS && units <= 1 << 32 && (SIGMA_MIN..=SIGMA_MAX).contains(&sigma.value());
        if fits { Ok(sigma) } else { Err(BadSigma(sigma.value())) }
    }
}

impl From<Sigma> for (u64, u32) {
    fn from(sigma: Sigma) -> Self {
        (sigma.units, sigma.bits)
    }
}

fn pow2(bits: u32) -> f64 {
    (1_u64 << bits) as f64
}

/// A sampler for one standard deviation. Creating one costs as much as a thousand draws.
#[derive(Clone, Debug)]
pub struct DiscreteGaussian {
    sigma: Sigma,
    majorant: Majorant<GaussianWeight>,
}

impl DiscreteGaussian {
    /// Precomputes the step function.
    #[must_use]
    pub fn new(sigma: Sigma) -> Self {
        Self { sigma, majorant: Majorant::new(GaussianWeight::new(sigma)) }
    }

    /// The parameter sigma. The distribution's standard deviation is the same for sigma of at least 1, and smaller
    /// below.
    #[must_use]
    pub fn sigma(&self) -> Sigma {
        self.sigma
    }

    #[inline]
    #[must_use]
    pub fn sample<R: CryptoRng + ?Sized>(&self, rng: &mut R) -> i64 {
        self.majorant.sample(rng)
    }
}

#[derive(Clone, Copy, Debug)]
struct GaussianWeight {
    sigma: Sigma,
    /// `1 / (2 sigma^2)`.
    rate: f64,
}

impl GaussianWeight {
    fn new(sigma: Sigma) -> Self {
        Self { sigma, rate: 0.5 / (sigma.value() * sigma.value()) }
    }
}

impl Weight for GaussianWeight {
    // The exponent is below 745 and off by less than four roundings, libm's exp by less than one: 2^-40 in all.
    const GUARD: f64 = 1.0 / (1_u64 << 34) as f64;

    fn mode(&self) -> i64 {
        0
    }

    fn spread(&self) -> f64 {
        self.sigma.value()
    }

    fn estimate(&self, x: i64) -> f64 {
        let x = x as f64;
        libm::exp(-(x * x * self.rate))
    }

    fn exact(&self, x: i64, limbs: usize) -> Fixed {
        // x^2 q^2 / (2 p^2) for sigma = p / q.
        let scaled = u128::from(x.unsigned_abs()).checked_shl(self.sigma.bits);
        let Some(num) = scaled.and_then(|scaled| scaled.checked_mul(scaled)) else {
            // Beyond 2^19 standard deviations, where the weight is far below the resolution of `limbs` limbs.
            return Fixed::integer(0, limbs);
        };
        let units = u128::from(self.sigma.units);
        exp_neg(num, 2 * units * units, limbs)
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;
    use rand_chacha::ChaCha20Rng;

    use super::*;

    #[test]
    fn sigmas_are_rounded_up_and_come_back() {
        for sigma in [1.0 / 64.0, 0.5, 0.7, 1.0, 4.5, 1e3, 12_345.678, 1e9, 4_294_967_296.0] {
            let rational = Sigma::at_least(sigma).unwrap();
            assert!(rational.value() >= sigma && rational.value() < sigma * (1.0 + 1e-4), "{sigma} {rational:?}");
            assert!(sigma < 2048.0 || rational.value() < sigma * (1.0 + 1e-9));
            let json = serde_json::to_string(&rational).unwrap();
            assert_eq!(serde_json::from_str::<Sigma>(&json).unwrap(), rational);
        }
        for bad in [0.0, -1.0, 0.01, 5e9, f64::INFINITY, f64::NAN] {
            assert!(Sigma::at_least(bad).is_err(), "{bad}");
        }
        for bad in ["[0,0]", "[1,21]", "[1,20]", "[4294967297,0]", "[1,4294967295]"] {
            assert!(serde_json::from_str::<Sigma>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    #[expect(clippy::cast_possible_truncation, reason = "small numbers")]
    fn estimates_agree_with_exact_weights() {
        for sigma in [0.5, 4.5, 1000.0, 1e7] {
            let weight = GaussianWeight::new(Sigma::at_least(sigma).unwrap());
            for t in [0.0, 0.3, 1.0, 2.0, 5.0, 9.0, 20.0] {
                let x = (t * sigma) as i64;
                let (estimate, exact) = (weight.estimate(x), weight.exact(x, 8).to_f64());
                let tolerance = exact * GaussianWeight::GUARD / 8.0;
                assert!((estimate - exact).abs() <= tolerance, "{sigma} {x}: {estimate} {exact}");
            }
        }
    }

    /// A weight with so large an error bound that every draw is decided in integers.
    struct Distrustful(GaussianWeight);

    impl Weight for Distrustful {
        const GUARD: f64 = 0.999;

        fn mode(&self) -> i64 {
            0
        }

        fn spread(&self) -> f64 {
            self.0.spread()
        }

        fn estimate(&self, x: i64) -> f64 {
            self.0.estimate(x)
        }

        fn exact(&self, x: i64, limbs: usize) -> Fixed {
            self.0.exact(x, limbs)
        }
    }

    #[test]
    fn what_integers_decide_has_the_distribution_too() {
        let mut rng = ChaCha20Rng::seed_from_u64(1);
        let sigma = 3.0;
        let majorant = Majorant::new(Distrustful(GaussianWeight::new(Sigma::at_least(sigma).unwrap())));
        let mut counts = [0.0_f64; 17];
        let draws = 20_000;
        for _ in 0..draws {
            counts[usize::try_from(majorant.sample(&mut rng).clamp(-8, 8) + 8).unwrap()] += 1.0;
        }
        let weight = |x: i64| (-(x as f64).powi(2) / (2.0 * sigma * sigma)).exp();
        let total: f64 = (-60..=60).map(weight).sum();
        let statistic: f64 = (-7..=7_i32)
            .map(|x| {
                let expected = f64::from(draws) * weight(i64::from(x)) / total;
                (counts[usize::try_from(x + 8).unwrap()] - expected).powi(2) / expected
            })
            .sum();
        // 15 bins: mean 15, standard deviation 5.5.
        assert!(statistic < 38.0, "{statistic}");
    }
}
