//! Bounds on the size of a Poisson cohort, up to a small probability.

use crate::privacy::SamplingRate;

/// The largest cohort that Poisson sampling draws, except with a probability below 2^-40.
#[must_use]
pub fn largest_draw(population: u32, rate: SamplingRate) -> u32 {
    population - quantile(population, 1.0 - rate.value(), 2f64.powi(-40))
}

/// The fewest survivors of a Poisson cohort that loses a share `dropouts`, except with probability `failing`. The noise
/// of a distributed mechanism may assume this many; a smaller cohort aborts its round before anyone uploads.
#[must_use]
pub fn smallest_draw(population: u32, rate: SamplingRate, dropouts: f64, failing: f64) -> u32 {
    let drawn = f64::from(quantile(population, rate.value(), failing));
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most the population")]
    let left = (drawn * (1.0 - dropouts.clamp(0.0, 1.0))).floor() as u32;
    left
}

/// Largest `k` with `P(X < k) <= probability` for `X` from Bin(population, rate).
fn quantile(population: u32, rate: f64, probability: f64) -> u32 {
    if rate >= 1.0 {
        return population;
    }
    if rate <= 0.0 {
        return 0;
    }
    let n = f64::from(population);
    let ln_ways = |k: f64| libm::lgamma(n + 1.0) - libm::lgamma(k + 1.0) - libm::lgamma(n - k + 1.0);
    let (ln_rate, ln_rest) = (libm::log(rate), libm::log1p(-rate));
    // Chernoff: P(X <= np - t) <= exp(-t^2 / (2np)); the skipped part is below 2^-30 of the probability.
    let skipped = (2.0 * n * rate * (30.0 * std::f64::consts::LN_2 - libm::log(probability))).sqrt();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most the population")]
    let from = (n * rate - skipped).max(0.0).floor() as u32;
    let mut below = 0.0;
    for k in from..population {
        let count = f64::from(k);
        below += libm::exp(ln_ways(count) + count * ln_rate + (n - count) * ln_rest);
        if below > probability {
            return k;
        }
    }
    population
}
