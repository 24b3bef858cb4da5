//! Noise on integer sums: the effect of rounding on sensitivity, and Rényi bounds of the discrete Gaussian, of sums of
//! discrete Gaussians and of Skellam noise.

use serde::{Deserialize, Serialize};

use super::RdpCurve;

/// Largest L2 norm of a vector of `dimension` coordinates that was clipped to `clip` (in units of the grid) and rounded
/// stochastically until it is no longer than this (Kairouz, Liu, Steinke 2021, Proposition 26, with `beta =
/// exp(-1/2)`): at least two roundings in five succeed.
#[must_use]
pub fn inflated_sensitivity(clip: f64, dimension: u64) -> f64 {
    let root = (dimension as f64).sqrt();
    // sqrt(2 ln(1/beta)) = 1.
    let probable = clip * clip + 0.25 * dimension as f64 + (clip + 0.5 * root);
    (clip + root).min(probable.sqrt())
}

/// Distribution of the noise in a sum.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum SumNoise {
    /// One discrete Gaussian draw of this standard deviation per coordinate.
    DiscreteGaussian {
        /// Standard deviation.
        sigma: f64,
    },
    /// A sum of `shares` independent discrete Gaussian draws of standard deviation `sigma` each.
    DiscreteGaussianShares {
        /// Of one share.
        sigma: f64,
        shares: u32,
    },
    /// Skellam noise of this total variance, from any number of shares.
    Skellam {
        /// Of the sum.
        variance: f64,
    },
}

/// Noise on a sum in which one participant changes the L2 norm by at most `sensitivity`, in grid units.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SumMechanism {
    pub noise: SumNoise,
    pub sensitivity: f64,
    pub dimension: u64,
}

impl SumMechanism {
    /// Standard deviation of the noise in each coordinate.
    #[must_use]
    pub fn sigma(&self) -> f64 {
        match self.noise {
            SumNoise::DiscreteGaussian { sigma } => sigma,
            SumNoise::DiscreteGaussianShares { sigma, shares } => sigma * f64::from(shares).sqrt(),
            SumNoise::Skellam { variance } => variance.sqrt(),
        }
    }

    /// `rho`, if the mechanism is zCDP by itself.
    #[must_use]
    pub fn rho(&self) -> Option<f64> {
        match self.noise {
            SumNoise::DiscreteGaussian { sigma } => Some(0.5 * square(self.sensitivity / sigma)),
            SumNoise::DiscreteGaussianShares { sigma, shares: 1 } => Some(0.5 * square(self.sensitivity / sigma)),
            SumNoise::DiscreteGaussianShares { .. } | SumNoise::Skellam { .. } => None,
        }
    }

    /// The Rényi bound at an integer order from 2.
    #[must_use]
    pub fn bound(&self, order: u32) -> f64 {
        let alpha = f64::from(order);
        let (l2, root) = (self.sensitivity, (self.dimension as f64).sqrt());
        // Integer vectors: no coordinate moves by less than one, so L1 is at most the square of L2.
        let l1 = (root * l2).min(l2 * l2);
        match self.noise {
            SumNoise::DiscreteGaussian { sigma } => 0.5 * alpha * square(l2 / sigma),
            SumNoise::DiscreteGaussianShares { sigma, shares } => {
                let tau = sum_divergence(sigma, shares);
                let total = self.sigma();
                let (l2, l1) = (l2 / total, l1 / total);
                let dimension = self.dimension as f64;
                let first = 0.5 * alpha * l2 * l2 + tau * dimension;
                let second = 0.5 * alpha * (l2 * l2 + 2.0 * l1 * tau + tau * tau * dimension);
                let third = 0.5 * alpha * square(l2 + root * tau);
                first.min(second).min(third)
            }
            SumNoise::Skellam { variance } => {
                let close = ((2.0 * alpha - 1.0) * l2 * l2 + 6.0 * l1) / (4.0 * variance * variance);
                let far = 3.0 * l1 / (2.0 * variance);
                0.5 * alpha * l2 * l2 / variance + close.min(far)
            }
        }
    }

    /// The bound at every order of the table, for one release without sampling.
    #[must_use]
    pub fn curve(&self) -> RdpCurve {
        if let SumNoise::DiscreteGaussian { sigma } = self.noise {
            let rho = 0.5 * square(self.sensitivity / sigma);
            return RdpCurve::from_orders(|order| order * rho);
        }
        RdpCurve::from_integer_orders(|order| self.bound(order))
    }
}

/// Not `powi`, whose last bit depends on the platform.
fn square(x: f64) -> f64 {
    x * x
}

/// `tau`: how far a sum of `shares` discrete Gaussians is from being one (Kairouz, Liu, Steinke 2021, Theorem 1).
#[must_use]
pub fn sum_divergence(sigma: f64, shares: u32) -> f64 {
    let rate = 2.0 * square(std::f64::consts::PI) * sigma * sigma;
    let sum: f64 = (1..shares).map(|k| f64::from(k) / f64::from(k + 1)).map(|part| libm::exp(-rate * part)).sum();
    10.0 * sum
}

/// Number of nodes containing one leaf in a binary tree over `releases` leaves: the charge to a participant of one release.
#[must_use]
pub fn tree_levels(releases: u32) -> u32 {
    (u64::from(releases) + 1).next_power_of_two().trailing_zeros()
}
