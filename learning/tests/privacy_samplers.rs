//! Goodness of fit of the exact samplers: chi-square over 10^6 draws, over 10^7 with `--ignored`
//! (`just soak`).
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::print_stdout,
    reason = "helpers of tests: bins are small numbers, and scores are worth seeing"
)]

use std::collections::BTreeMap;

use learning::privacy::{DiscreteGaussian, Sigma, Skellam, Variance};
use rand::SeedableRng as _;
use rand_chacha::ChaCha20Rng;

const SIGMAS: [f64; 5] = [0.5, 1.0, 4.5, 50.0, 1000.0];

/// Probability beyond which a deviation is a failure; seeds are fixed, so a passing test keeps passing.
const Z_LIMIT: f64 = 4.5;

/// Pools integers into bins that expect at least 50 draws each, about 400 of them.
fn chi_square(
    draws: usize,
    probability: impl Fn(i64) -> f64,
    mut draw: impl FnMut() -> i64,
    spread: f64,
) -> (f64, f64) {
    let mut counts: BTreeMap<i64, u64> = BTreeMap::new();
    for _ in 0..draws {
        *counts.entry(draw()).or_default() += 1;
    }
    let reach = (spread * 9.0) as i64 + 20;
    let smallest = (draws as f64 / 400.0).max(50.0);
    let (mut statistic, mut bins) = (0.0, 0.0);
    let (mut expected, mut seen, mut last, mut total) = (0.0, 0.0, (0.0, 0.0), 0.0);
    for x in -reach..=reach {
        expected += draws as f64 * probability(x);
        seen += counts.get(&x).copied().unwrap_or(0) as f64;
        if expected >= smallest {
            statistic += (seen - expected).powi(2) / expected;
            bins += 1.0;
            total += expected;
            last = (expected, seen);
            (expected, seen) = (0.0, 0.0);
        }
    }
    // The remainder joins the last bin.
    let outside = counts.iter().filter(|(x, _)| x.abs() > reach).map(|(_, &n)| n as f64).sum::<f64>();
    statistic -= (last.1 - last.0).powi(2) / last.0;
    let expected = last.0 + (draws as f64 - total);
    statistic += (last.1 + seen + outside - expected).powi(2) / expected;
    (statistic, bins - 1.0)
}

/// Wilson and Hilferty's normal score of a chi-square statistic.
fn score((statistic, freedom): (f64, f64)) -> f64 {
    let c = 2.0 / (9.0 * freedom);
    ((statistic / freedom).cbrt() - (1.0 - c)) / c.sqrt()
}

fn gaussian_probability(sigma: f64) -> impl Fn(i64) -> f64 {
    let weight = move |x: i64| (-(x as f64).powi(2) / (2.0 * sigma * sigma)).exp();
    let reach = (sigma * 40.0) as i64 + 20;
    let total: f64 = (-reach..=reach).map(weight).sum();
    move |x| weight(x) / total
}

/// By convolution of the two Poisson distributions.
fn skellam_probability(variance: f64) -> impl FnMut(i64) -> f64 {
    let mean = variance / 2.0;
    let around = 14.0 * mean.sqrt() + 40.0;
    let first = (mean - around).max(0.0) as usize;
    let mut poisson = vec![0.0_f64; (mean + around) as usize - first];
    // Upwards and downwards from the mode, then normalised: no underflow, no factorial.
    let mode = mean as usize - first;
    poisson[mode] = 1.0;
    for k in mode + 1..poisson.len() {
        poisson[k] = poisson[k - 1] * mean / (first + k) as f64;
    }
    for k in (0..mode).rev() {
        poisson[k] = poisson[k + 1] * (first + k + 1) as f64 / mean;
    }
    let total: f64 = poisson.iter().sum();
    let mut table = BTreeMap::new();
    move |x| {
        *table.entry(x.unsigned_abs()).or_insert_with_key(|&x| {
            let shift = x as usize;
            (0..poisson.len().saturating_sub(shift)).map(|k| poisson[k] * poisson[k + shift]).sum::<f64>()
                / (total * total)
        })
    }
}

fn check_gaussian(draws: usize) {
    for (seed, sigma) in (0..).zip(SIGMAS) {
        let mut rng = ChaCha20Rng::seed_from_u64(seed);
        let sampler = DiscreteGaussian::new(Sigma::at_least(sigma).unwrap());
        let score = score(chi_square(draws, gaussian_probability(sigma), || sampler.sample(&mut rng), sigma));
        println!("discrete Gaussian {sigma}: {draws} draws, score {score:.2}");
        assert!(score < Z_LIMIT, "sigma {sigma}: {score}");
    }
}

fn check_skellam(draws: usize) {
    for (seed, sigma) in (100..).zip(SIGMAS) {
        let mut rng = ChaCha20Rng::seed_from_u64(seed);
        let sampler = Skellam::new(Variance::at_least(sigma * sigma).unwrap());
        let mut probability = skellam_probability(sigma * sigma);
        let table: BTreeMap<i64, f64> = {
            let reach = (sigma * 9.0) as i64 + 20;
            (-reach..=reach).map(|x| (x, probability(x))).collect()
        };
        let score = score(chi_square(draws, |x| table[&x], || sampler.sample(&mut rng), sigma));
        println!("Skellam {sigma}: {draws} draws, score {score:.2}");
        assert!(score < Z_LIMIT, "sigma {sigma}: {score}");
    }
}

#[test]
fn discrete_gaussian_fits() {
    check_gaussian(1_000_000);
}

#[test]
fn skellam_fits() {
    check_skellam(1_000_000);
}

#[test]
#[ignore = "a minute; `just soak` runs it"]
fn discrete_gaussian_fits_over_ten_million_draws() {
    check_gaussian(10_000_000);
}

#[test]
#[ignore = "a minute; `just soak` runs it"]
fn skellam_fits_over_ten_million_draws() {
    check_skellam(10_000_000);
}

/// Negative control: a sampler with a standard deviation off by one percent fails.
#[test]
fn a_wrong_sigma_does_not_fit() {
    let mut rng = ChaCha20Rng::seed_from_u64(9);
    let sampler = DiscreteGaussian::new(Sigma::at_least(4.545).unwrap());
    let score = score(chi_square(1_000_000, gaussian_probability(4.5), || sampler.sample(&mut rng), 4.5));
    assert!(score > 2.0 * Z_LIMIT, "{score}");
}

#[test]
fn large_sigmas_have_their_moments() {
    for sigma in [1e5, 3e7, 4e9] {
        let mut rng = ChaCha20Rng::seed_from_u64(5);
        let gaussian = DiscreteGaussian::new(Sigma::at_least(sigma).unwrap());
        moments(sigma, || gaussian.sample(&mut rng));
        if sigma < 1e6 {
            let mut rng = ChaCha20Rng::seed_from_u64(6);
            let skellam = Skellam::new(Variance::at_least(sigma * sigma).unwrap());
            moments(sigma, || skellam.sample(&mut rng));
        }
    }
}

fn moments(sigma: f64, mut draw: impl FnMut() -> i64) {
    let n = 200_000;
    let draws: Vec<f64> = (0..n).map(|_| draw() as f64 / sigma).collect();
    let power = |p: i32| draws.iter().map(|x| x.powi(p)).sum::<f64>() / f64::from(n);
    // Standard errors: 0.0022, 0.0032, 0.0087, 0.022.
    assert!(power(1).abs() < 0.01, "{sigma} {}", power(1));
    assert!((power(2) - 1.0).abs() < 0.014, "{sigma} {}", power(2));
    assert!(power(3).abs() < 0.04, "{sigma} {}", power(3));
    assert!((power(4) - 3.0).abs() < 0.1, "{sigma} {}", power(4));
}
