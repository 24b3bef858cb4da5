//! Privacy loss distributions of the continuous Gaussian, with and without Poisson sampling, composed by FFT.
//!
//! A mechanism is described by the distribution of its privacy loss `ln(P/Q)` under `P`, for both directions of adding
//! or removing one participant. Losses are put on a grid by splitting the mass between two grid points onto both of
//! them so that its probability under `P` and under `Q` is kept ("connect the dots", Doroshenko et al. 2022): the grid
//! mechanism is never more private than the real one, and far closer to it than rounding losses up. Convolution works
//! on the distribution tilted towards the losses that matter, so that its rounding errors are small compared with a small
//! delta. The mass that
//! tails and rounding could hide is added to delta. Tight, but a statement about continuous noise: what is released is
//! discrete and charged by Rényi bounds (docs/PRIVACY.md).

mod compose;
mod losses;
mod sampled;
mod transform;

pub use compose::{Composed, compose};
pub use losses::{LossPair, PldError};
use losses::{Losses, POINTS_MAX};
pub(super) use sampled::Sampled;

/// Width of the grid of losses.
pub const GRID: f64 = 1e-4;

/// Standard deviations beyond which a normal tail is dropped: 1.5e-23.
const REACH: f64 = 10.0;

impl LossPair {
    /// The Gaussian with noise multiplier `z` on a cohort drawn with rate `q`, on a grid of [`GRID`].
    ///
    /// # Errors
    /// [`PldError::Noise`], [`PldError::Rate`].
    pub fn poisson_gaussian(q: f64, z: f64) -> Result<Self, PldError> {
        Self::poisson_gaussian_on(q, z, GRID)
    }

    /// The same on another grid: a finer one is tighter and slower.
    ///
    /// # Errors
    /// [`PldError::Noise`], [`PldError::Rate`].
    pub fn poisson_gaussian_on(q: f64, z: f64, grid: f64) -> Result<Self, PldError> {
        let sampled = Sampled::new(q, z)?;
        let (low, high) = sampled.span(REACH);
        sampled.pair(grid.max((high - low) / POINTS_MAX), low, high)
    }

    /// The same with every loss rounded *down*: a lower bound that guarantees nothing, for judging the tightness of the
    /// others.
    ///
    /// # Errors
    /// [`PldError::Noise`], [`PldError::Rate`].
    pub fn optimistic_poisson_gaussian(q: f64, z: f64, grid: f64) -> Result<Self, PldError> {
        let mut pair = Self::poisson_gaussian_on(q, z, grid)?;
        let sampled = Sampled::new(q, z)?;
        pair.remove.round_down(|from, to| sampled.between(sampled.point(from), sampled.point(to)).1);
        pair.add.round_down(|from, to| sampled.between(sampled.point(-to), sampled.point(-from)).0);
        Ok(pair)
    }

    /// The discrete Gaussian on one integer of sensitivity `sensitivity`; only for one, since the bound of a vector
    /// depends on its direction.
    ///
    /// # Errors
    /// [`PldError::Noise`].
    pub fn discrete_gaussian(sigma: f64, sensitivity: u32) -> Result<Self, PldError> {
        let z = sigma / f64::from(sensitivity);
        if !(0.05..=10_000.0).contains(&z) || sigma > 10_000.0 {
            return Err(PldError::Noise(z));
        }
        let shift = f64::from(sensitivity);
        #[expect(clippy::cast_possible_truncation, reason = "at most 10^5")]
        let reach = (sigma * REACH).ceil() as i64 + i64::from(sensitivity);
        let weight = |x: f64| libm::exp(-0.5 * (x / sigma) * (x / sigma));
        let total: f64 = (-reach..=reach).map(|x| weight(x as f64)).sum();
        let loss = |x: f64| (shift * shift - 2.0 * x * shift) / (2.0 * sigma * sigma);
        let mut losses = Losses::spanning(GRID, loss(reach as f64), loss(-reach as f64));
        for x in -reach..=reach {
            let x = x as f64;
            let mass = weight(x) / total;
            losses.push(loss(x), mass, mass * libm::exp(-loss(x)));
        }
        // Beyond REACH standard deviations: less than 1e-22.
        losses.infinite = 1e-22;
        Ok(Self { remove: losses.clone(), add: losses })
    }
}
