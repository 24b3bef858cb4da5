//! One release with continuous Gaussian noise and no sampling, exactly (Balle and Wang 2018, Theorem 8): the result of
//! the privacy loss distribution without a grid.

use super::special::ln_erfc;

/// The least epsilon at `delta` (above 0, below 1) of noise of `noise_multiplier` (positive) times the sensitivity.
pub(crate) fn epsilon(noise_multiplier: f64, delta: f64) -> f64 {
    let enough = |epsilon: f64| delta_of(noise_multiplier, epsilon) <= delta;
    if enough(0.0) {
        return 0.0;
    }
    let (mut low, mut high) = (0.0, 1.0);
    while !enough(high) {
        low = high;
        high *= 2.0;
    }
    while high - low > 1e-12 * high {
        let middle = 0.5 * (low + high);
        if enough(middle) { high = middle } else { low = middle }
    }
    high
}

/// `Phi(1/(2z) - eps z) - e^eps Phi(-1/(2z) - eps z)`.
fn delta_of(z: f64, epsilon: f64) -> f64 {
    let ln_phi = |x: f64| ln_erfc(-x * std::f64::consts::FRAC_1_SQRT_2) - std::f64::consts::LN_2;
    let (shift, reach) = (0.5 / z, epsilon * z);
    libm::exp(ln_phi(shift - reach)) - libm::exp(epsilon + ln_phi(-shift - reach))
}

#[cfg(test)]
mod tests {
    use super::super::{LossPair, compose};
    use super::*;

    #[test]
    fn is_what_others_say_and_what_the_grid_approaches() {
        // The smallest noise for these by Balle and Wang's own search, as dp-accounting has it (the oracle's rows).
        for (z, delta, known) in [
            (7.031_826_675_582_5, 1e-5, 0.5),
            (4.224_678_889_326_82, 1e-6, 1.0),
            (3.730_631_634_815_94, 1e-5, 1.0),
            (0.652_935_384_358_216, 1e-6, 8.0),
            (0.650_246_918_958_654, 1e-9, 10.0),
        ] {
            assert!((epsilon(z, delta) / known - 1.0).abs() < 1e-6, "{z}: {}", epsilon(z, delta));
        }
        for (z, delta) in [(0.5, 1e-5), (1.0, 1e-6), (3.0, 1e-5), (20.0, 1e-8)] {
            let pair = LossPair::poisson_gaussian(1.0, z).unwrap();
            let (exact, grid) = (epsilon(z, delta), compose(&[(&pair, 1)]).unwrap().epsilon(delta));
            assert!(exact <= grid && grid <= exact * 1.001 + 2e-4, "{z}: {exact} {grid}");
        }
        assert_eq!(epsilon(1e6, 1e-3), 0.0);
    }
}
