//! Logarithms of binomial coefficients, error functions and sums.

use std::sync::LazyLock;

/// `ln(n choose k)` for integers up to 1024.
pub(super) fn ln_binomial(n: u32, k: u32) -> f64 {
    static LN_FACTORIALS: LazyLock<Vec<f64>> =
        LazyLock::new(|| (0..=1024_u32).map(|m| libm::lgamma(f64::from(m) + 1.0)).collect());
    let ln_factorial = |m: u32| LN_FACTORIALS[m as usize];
    ln_factorial(n) - ln_factorial(k) - ln_factorial(n - k)
}

/// `ln(exp(a) + exp(b))`.
pub(super) fn ln_add(a: f64, b: f64) -> f64 {
    let (low, high) = if a < b { (a, b) } else { (b, a) };
    if low == f64::NEG_INFINITY { high } else { high + libm::log1p(libm::exp(low - high)) }
}

/// `ln erfc(x)`, also where erfc underflows.
pub(super) fn ln_erfc(x: f64) -> f64 {
    if x < 20.0 {
        return libm::log(libm::erfc(x));
    }
    let square = x * x;
    let series = 1.0 - (0.5 - (0.75 - (1.875 - 6.5625 / square) / square) / square) / square;
    -square - libm::log(x * std::f64::consts::PI.sqrt()) + libm::log(series)
}

/// Standard normal probability of `(a, b]`, precise in both tails.
pub(super) fn normal_between(a: f64, b: f64) -> f64 {
    let half = |x: f64| x * std::f64::consts::FRAC_1_SQRT_2;
    if a >= 0.0 {
        0.5 * (libm::erfc(half(a)) - libm::erfc(half(b)))
    } else if b <= 0.0 {
        0.5 * (libm::erfc(half(-b)) - libm::erfc(half(-a)))
    } else {
        0.5 * (libm::erf(half(b)) - libm::erf(half(a)))
    }
}

/// Upper bound on the error of [`normal_between`]. The argument of `erfc` is rounded, which moves a tail by `x^2`
/// roundings, and `erfc` is accurate to a few; a tail beyond `x` is at most `exp(-x^2 / 2) / 2`.
pub(super) fn normal_between_error(a: f64, b: f64) -> f64 {
    let nearest = if a > 0.0 {
        a
    } else if b < 0.0 {
        -b
    } else {
        0.0
    };
    // Beyond 50 both tails are zero.
    let square = nearest.min(50.0) * nearest.min(50.0);
    8.0 * f64::EPSILON * (1.0 + square) * libm::exp(-0.5 * square)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agree_with_known_values() {
        assert!((ln_binomial(10, 3) - 120_f64.ln()).abs() < 1e-13);
        assert!((ln_add(1.0, 2.0) - (1_f64.exp() + 2_f64.exp()).ln()).abs() < 1e-14);
        assert_eq!(ln_add(f64::NEG_INFINITY, 2.0), 2.0);
        // Both formulas at their seam.
        let asymptotic = ln_erfc(20.0);
        assert!((libm::log(libm::erfc(20.0)) / asymptotic - 1.0).abs() < 1e-12);
        assert!((normal_between(-1.0, 1.0) - 0.682_689_492_137_085_9).abs() < 1e-15);
        assert!((normal_between(5.0, 6.0) / 2.856_650_045_6e-7 - 1.0).abs() < 1e-6);
        assert_eq!(normal_between(5.0, 6.0), normal_between(-6.0, -5.0));
    }
}
