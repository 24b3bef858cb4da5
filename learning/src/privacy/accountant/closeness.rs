//! How close discrete Gaussian noise is to continuous Gaussian noise that was rounded: close enough to charge for the latter.
//!
//! Rounding `x + N(0, sigma^2)` for an integer `x` is post-processing, so releases with rounded noise cost no more than those of the
//! textbook, sampling included. Let `r(k)` be the probability of rounded noise and `p(k)` of discrete Gaussian noise. With `r(k) / p(k) =
//! (Z / (sigma sqrt(2 pi))) int exp(-u^2 / (2 sigma^2)) cosh(k u / sigma^2) du` over `|u| <= 1/2`, where the factor before the integral is
//! between 1 and `1 + 3 exp(-2 pi^2 sigma^2)`:
//!
//! * `p(k) <= exp(1 / (8 sigma^2)) r(k)` for all `k`, since `cosh >= 1`;
//! * `r(k) <= exp(k^2 / (8 sigma^4)) p(k)`, since `cosh(t) <= exp(t^2 / 2)`;
//! * under `r`, the mean of `exp(k^2 / (4 sigma^2))` is at most `exp(0.37)` for `sigma >= 4`, so over `M` independent coordinates the sum
//!   of `k^2 / sigma^2` exceeds `4 (0.37 M + L)` with a probability of at most `exp(-L)`.
//!
//! All noise of all releases is one vector of `M` coordinates, and an observer's view is a function of it and of data independent of it. So
//! if the textbook yields (epsilon, delta'), the releases are
//! `(epsilon + a + b, exp(a) (delta' + exp(epsilon - L)))`-DP with `a = M / (8 sigma^2)` and `b = (0.37 M + L) / (2 sigma^2)`. Sums of
//! discrete Gaussian shares are within `tau` a coordinate of one such Gaussian, either way, which adds to both.

use serde::{Deserialize, Serialize};

use super::{Gaussians, RdpCurve};

/// Share of delta reserved for closeness.
const DELTA_PART: f64 = 1e-3;
/// A larger `a` would need a larger share of delta.
const RATIO_MAX: f64 = 5e-4;
/// Smallest sigma for the third bound.
const SIGMA_MIN: f64 = 4.0;

/// The cost of the approximation, as ledgers record it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Closeness {
    pub epsilon: f64,
    /// Taken from delta before the textbook's epsilon is computed.
    pub delta: f64,
}

/// The accountant for the continuous releases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Textbook {
    /// Rényi divergences alone, for ledger rows without a named accounting.
    Renyi,
    /// The lower of Rényi divergences and, where they can be computed, privacy loss distributions.
    LossDistribution,
}

/// Releases with (sums of) discrete Gaussian noise, treated as releases with rounded continuous noise.
#[derive(Clone, Debug, PartialEq)]
pub struct CloseCurve {
    textbook: RdpCurve,
    gaussians: Gaussians,
    coordinates: f64,
    sigma_min: f64,
    /// Sum over all coordinates.
    tau: f64,
}

impl CloseCurve {
    #[must_use]
    pub fn zero() -> Self {
        let (textbook, gaussians) = (RdpCurve::zero(), Gaussians::default());
        Self { textbook, gaussians, coordinates: 0.0, sigma_min: f64::INFINITY, tau: 0.0 }
    }

    /// Releases whose textbook counterparts are `gaussians`, with noise of standard deviation `sigma` in each of
    /// `coordinates` in total, itself within `tau` of a discrete Gaussian. `None` if the noise is too narrow.
    #[must_use]
    pub fn new(gaussians: Gaussians, coordinates: u64, sigma: f64, tau: f64) -> Option<Self> {
        let coordinates = coordinates as f64;
        (sigma >= SIGMA_MIN).then(|| Self {
            textbook: gaussians.renyi(),
            gaussians,
            coordinates,
            sigma_min: sigma,
            tau: tau * coordinates,
        })
    }

    /// Adds the other's releases.
    pub fn add(&mut self, other: &Self) {
        self.textbook.add(&other.textbook);
        self.gaussians.add(&other.gaussians);
        self.coordinates += other.coordinates;
        self.sigma_min = self.sigma_min.min(other.sigma_min);
        self.tau += other.tau;
    }

    /// A bound on either release; `None` under sampling.
    #[must_use]
    pub fn max(&self, other: &Self) -> Option<Self> {
        Some(Self {
            textbook: self.textbook.max(&other.textbook),
            gaussians: self.gaussians.max(&other.gaussians)?,
            coordinates: self.coordinates.max(other.coordinates),
            sigma_min: self.sigma_min.min(other.sigma_min),
            tau: self.tau.max(other.tau),
        })
    }

    /// The same releases `times` times.
    #[must_use]
    pub fn times(&self, times: u64) -> Self {
        let count = times as f64;
        let (textbook, gaussians) = (self.textbook.times(times), self.gaussians.times(times));
        Self { textbook, gaussians, coordinates: self.coordinates * count, tau: self.tau * count, ..*self }
    }

    /// Epsilon at `delta` and the part due to closeness; `None` if the noise is not close enough.
    #[must_use]
    pub fn epsilon(&self, delta: f64, by: Textbook) -> Option<(f64, Closeness)> {
        let rest = delta * (1.0 - DELTA_PART);
        let a = 0.125 * self.coordinates * (1.0 / (self.sigma_min * self.sigma_min)) + self.tau;
        if a > RATIO_MAX {
            return None;
        }
        let renyi = self.textbook.epsilon(rest).0;
        let textbook = match by {
            Textbook::Renyi => renyi,
            Textbook::LossDistribution => self.gaussians.epsilon(rest).map_or(renyi, |epsilon| epsilon.min(renyi)),
        };
        let precision = 1.0 / (self.sigma_min * self.sigma_min);
        // exp(epsilon - L) is delta times exp(-20).
        let surprise = textbook + libm::log(1.0 / delta) + 20.0;
        let b = 0.5 * (0.37 * self.coordinates + surprise) * precision + self.tau;
        let closeness = Closeness { epsilon: a + b, delta: DELTA_PART * delta };
        textbook.is_finite().then_some((textbook + a + b, closeness))
    }
}

#[cfg(test)]
mod tests {
    use super::super::special::normal_between;
    use super::*;

    /// The three bounds, numerically, where they are tightest.
    #[test]
    fn the_bounds_hold() {
        for sigma in [4.0_f64, 6.5, 30.0] {
            let reach = (sigma * 38.0).floor();
            let integers = || std::iter::successors(Some(-reach), move |k| (*k < reach).then_some(k + 1.0));
            let weight = |k: f64| (-k * k / (2.0 * sigma * sigma)).exp();
            let total: f64 = integers().map(weight).sum();
            let rounded = |k: f64| normal_between((k - 0.5) / sigma, (k + 0.5) / sigma);
            let mut mean = 0.0;
            for k in integers().filter(|k| k.abs() < 30.0 * sigma) {
                let ratio = (rounded(k) / (weight(k) / total)).ln();
                assert!(ratio >= -1.0 / (8.0 * sigma * sigma) - 1e-11, "{sigma} {k}: {ratio}");
                assert!(ratio <= k * k / (8.0 * sigma.powi(4)) + 1e-11, "{sigma} {k}: {ratio}");
                mean += rounded(k) * (k * k / (4.0 * sigma * sigma)).exp();
            }
            assert!(mean.ln() < 0.37 && mean.ln() > 0.34, "{sigma}: {}", mean.ln());
        }
    }

    #[test]
    fn is_little_where_the_grid_is_fine_and_refused_where_it_is_not() {
        let textbook = Gaussians::new(0.25, 1.5, 1);
        let delta = 1e-5;
        let close = |sigma| CloseCurve::new(textbook.clone(), 7850, sigma, 0.0);
        let all = textbook.times(60);
        let alone = [
            (Textbook::Renyi, all.renyi().epsilon(delta).0),
            (Textbook::LossDistribution, all.epsilon(delta).unwrap()),
        ];
        for (by, alone) in alone {
            let (epsilon, closeness) = close(1e6).unwrap().times(60).epsilon(delta, by).unwrap();
            assert!(epsilon > alone && epsilon < alone * 1.001, "{epsilon} {alone}");
            assert!(closeness.epsilon < 1e-6 && closeness.delta == 1e-8, "{closeness:?}");
            // 60 * 7850 / (8 * 10^4) is far above the limit.
            assert_eq!(close(100.0).unwrap().times(60).epsilon(delta, by), None);
            let mut sum = CloseCurve::zero();
            (0..60).for_each(|_| sum.add(&close(1e6).unwrap()));
            let added = sum.epsilon(delta, by).unwrap();
            assert!((added.0 / epsilon - 1.0).abs() < 1e-12);
        }
        assert_eq!(close(3.9), None);
        assert!(alone[1].1 < 0.95 * alone[0].1, "{alone:?}");
    }
}
