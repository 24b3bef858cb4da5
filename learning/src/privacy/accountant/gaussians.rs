//! Releases of the textbook Gaussian with continuous noise, with or without sampling, and their joint cost by privacy
//! loss distributions: exact without sampling, otherwise on a grid that never underestimates (`pld`).

use std::collections::BTreeMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use super::pld::{LossPair, PldError, Sampled, compose};
use super::{RdpCurve, gaussian, poisson_gaussian};

/// Maximum variance added by the grid to a release's losses, relative to their own: a few parts in ten thousand of epsilon.
const COARSENESS: f64 = 4e-4;
/// Share of delta reserved for tails.
const TAIL_PART: f64 = 1e-4;
/// Maximum number of grid points of a single distribution.
const POINTS_MAX: f64 = 1_048_576.0;
/// Number of points at which the moments of a loss are evaluated.
const MOMENT_POINTS: u32 = 400;
/// Relative error of an epsilon found by bisection.
const EXACTNESS: f64 = 1e-9;

/// Releases, grouped by equal settings.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gaussians(Vec<Alike>);

/// Releases with equal settings.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Alike {
    /// Probability that a participant is in a release; 1 without sampling.
    rate: f64,
    noise_multiplier: f64,
    times: u64,
}

impl Gaussians {
    /// `times` releases with this noise multiplier, positive and finite, each to a cohort drawn with this probability.
    #[must_use]
    pub fn new(rate: f64, noise_multiplier: f64, times: u64) -> Self {
        Self(if times == 0 { vec![] } else { vec![Alike { rate, noise_multiplier, times }] })
    }

    /// Adds the other's releases.
    pub fn add(&mut self, other: &Self) {
        for alike in &other.0 {
            let key = |at: &Alike| (at.rate.to_bits(), at.noise_multiplier.to_bits());
            match self.0.binary_search_by_key(&key(alike), key) {
                Ok(index) => self.0[index].times += alike.times,
                Err(index) => self.0.insert(index, *alike),
            }
        }
    }

    /// The same releases `times` times.
    #[must_use]
    pub fn times(&self, times: u64) -> Self {
        let all = self.0.iter().map(|alike| Alike { times: alike.times.saturating_mul(times), ..*alike });
        Self(all.filter(|alike| alike.times > 0).collect())
    }

    /// The costlier ones; `None` under sampling, where neither may bound the other.
    #[must_use]
    pub fn max(&self, other: &Self) -> Option<Self> {
        let (own, its) = (self.precision()?, other.precision()?);
        Some(if own >= its { self.clone() } else { other.clone() })
    }

    /// Without sampling: the squared inverse of the noise multiplier of one Gaussian that costs the same.
    fn precision(&self) -> Option<f64> {
        let precision = |at: &Alike| at.times as f64 / (at.noise_multiplier * at.noise_multiplier);
        self.0.iter().all(|alike| alike.rate >= 1.0).then(|| self.0.iter().map(precision).sum())
    }

    #[must_use]
    pub fn renyi(&self) -> RdpCurve {
        let mut sum = RdpCurve::zero();
        self.0.iter().for_each(|at| sum.add(&poisson_gaussian(at.rate, at.noise_multiplier).times(at.times)));
        sum
    }

    /// Least epsilon at `delta` (above 0, below 1), rounded up; `None` if it cannot be computed, because it is in the
    /// hundreds or there is hardly any noise. Cached, since a ledger needs it for each of its rows.
    #[must_use]
    pub fn epsilon(&self, delta: f64) -> Option<f64> {
        static KNOWN: LazyLock<Mutex<BTreeMap<Vec<u64>, Option<f64>>>> = LazyLock::new(Mutex::default);
        /// The cache is cleared beyond this many entries: some megabytes.
        const KNOWN_MAX: usize = 20_000;
        if let Some(precision) = self.precision() {
            return unsampled(precision, delta);
        }
        let words = self.0.iter().flat_map(|at| [at.rate.to_bits(), at.noise_multiplier.to_bits(), at.times]);
        let key: Vec<u64> = words.chain([delta.to_bits()]).collect();
        let lock = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lock().get(&key) {
            return *known;
        }
        let epsilon = self.composed(delta).ok().filter(|epsilon| epsilon.is_finite());
        let mut known = lock();
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert(key, epsilon);
        epsilon
    }

    fn composed(&self, delta: f64) -> Result<f64, PldError> {
        let releases: f64 = self.0.iter().map(|alike| alike.times as f64).sum();
        // The tail beyond r is less than exp(-r^2 / 2) / 2.
        let reach = (2.0 * libm::log(releases / (TAIL_PART * delta))).sqrt();
        let sampled: Result<Vec<Sampled>, PldError> =
            self.0.iter().map(|alike| Sampled::new(alike.rate, alike.noise_multiplier)).collect();
        let sampled = sampled?;
        let grid = self.grid(&sampled, reach);
        let on_grid = |one: &Sampled| {
            let (low, high) = one.span(reach);
            one.pair(grid, low, high)
        };
        let pairs: Result<Vec<LossPair>, PldError> = sampled.iter().map(on_grid).collect();
        let pairs = pairs?;
        let all: Vec<(&LossPair, u64)> = pairs.iter().zip(&self.0).map(|(pair, alike)| (pair, alike.times)).collect();
        compose(&all).map(|composed| composed.epsilon(delta))
    }

    /// As coarse as [`COARSENESS`] allows. A grid of width `h` adds at most `h^2 / 4` to the variance of a release, and at
    /// most `h` times the mean size of its losses.
    fn grid(&self, sampled: &[Sampled], reach: f64) -> f64 {
        let (mut variance, mut size, mut releases, mut widest) = (0.0, 0.0, 0.0, 0.0_f64);
        for (one, alike) in sampled.iter().zip(&self.0) {
            let (mean_size, its_variance) = one.moments(MOMENT_POINTS);
            let times = alike.times as f64;
            variance += times * its_variance;
            size += times * mean_size;
            releases += times;
            let (low, high) = one.span(reach);
            widest = widest.max(high - low);
        }
        let allowed = COARSENESS * variance;
        (4.0 * allowed / releases).sqrt().max(allowed / size).max(widest / POINTS_MAX)
    }
}

/// Gaussians without sampling compose to a single Gaussian, whose exact epsilon is known.
fn unsampled(precision: f64, delta: f64) -> Option<f64> {
    if precision == 0.0 {
        return Some(0.0);
    }
    let epsilon = gaussian::epsilon(1.0 / precision.sqrt(), delta) * (1.0 + EXACTNESS);
    Some(epsilon).filter(|epsilon| epsilon.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adds_up_and_remembers() {
        let mut sum = Gaussians::new(0.25, 1.5, 3);
        sum.add(&Gaussians::new(0.25, 1.5, 7));
        sum.add(&Gaussians::new(0.1, 2.0, 0));
        assert_eq!(sum, Gaussians::new(0.25, 1.5, 1).times(10));
        assert_eq!(sum.epsilon(1e-5), Gaussians::new(0.25, 1.5, 10).epsilon(1e-5));
        let mut mixed = Gaussians::new(0.25, 1.5, 5);
        mixed.add(&Gaussians::new(0.25, 3.0, 5));
        assert!(
            mixed.epsilon(1e-5) < sum.epsilon(1e-5)
                && mixed.epsilon(1e-5) > Gaussians::new(0.25, 3.0, 10).epsilon(1e-5)
        );
        assert_eq!(Gaussians::default().epsilon(1e-5), Some(0.0));
        assert_eq!(Gaussians::new(0.5, 0.01, 1).epsilon(1e-5), None);
    }

    #[test]
    fn without_sampling_is_one_gaussian() {
        let exact = Gaussians::new(1.0, 2.0, 16).epsilon(1e-5).unwrap();
        assert_eq!(exact, Gaussians::new(1.0, 0.5, 1).epsilon(1e-5).unwrap());
        let nearly = Gaussians::new(1.0 - 1e-12, 2.0, 16).epsilon(1e-5).unwrap();
        assert!(nearly >= exact * (1.0 - 1e-8) && nearly < 1.001 * exact, "{nearly} {exact}");
        let [one, two] = [Gaussians::new(1.0, 2.0, 1), Gaussians::new(1.0, 2.0, 2)];
        assert_eq!((one.max(&two), two.max(&one)), (Some(two.clone()), Some(two)));
        assert_eq!(one.max(&Gaussians::new(0.5, 0.1, 1)), None);
    }
}
