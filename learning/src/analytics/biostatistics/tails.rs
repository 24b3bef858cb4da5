//! Tail probabilities of test statistics, with the same bits on every replica.

use std::f64::consts::{PI, SQRT_2};

/// Convergence of the continued fraction.
const PRECISION: f64 = 1e-16;
/// The fraction converges in about the square root of the degrees of freedom.
const MAX_TERMS: u32 = 200_000;

/// Probability that a standard normal number is farther from 0 than `z`.
pub(super) fn normal_beyond(z: f64) -> f64 {
    libm::erfc(z.abs() / SQRT_2)
}

/// Probability that a chi-square number with `df` degrees of freedom is above `x`. `df` is at least 1.
///
/// Q(a + 1, x) = Q(a, x) + x^a e^-x / Γ(a + 1) (DLMF §8.8.6), from Q(1/2, x) = erfc(√x) or Q(1, x) = e^-x.
pub(super) fn chi_square_above(x: f64, df: u32) -> f64 {
    let x = x.max(0.0) / 2.0;
    let decay = libm::exp(-x);
    let (mut tail, mut a, mut term) = if df.is_multiple_of(2) {
        (decay, 1.0, x * decay)
    } else {
        (libm::erfc(x.sqrt()), 0.5, 2.0 * (x / PI).sqrt() * decay)
    };
    while 2.0 * a < f64::from(df) {
        tail += term;
        a += 1.0;
        term *= x / a;
    }
    tail.min(1.0)
}

/// Probability that Student's t with `df` degrees of freedom is farther from 0 than `t`.
pub(super) fn student_beyond(t: f64, df: f64) -> f64 {
    let square = t * t;
    if square.is_infinite() {
        return 0.0;
    }
    incomplete_beta(df / (df + square), square / (df + square), df / 2.0, 0.5)
}

/// The number that Student's t exceeds in magnitude with probability `beyond`, which is between 0 and 1.
pub(super) fn student_bound(beyond: f64, df: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    while student_beyond(high, df) > beyond && high < 1e15 {
        high *= 2.0;
    }
    for _ in 0..100 {
        let middle = f64::midpoint(low, high);
        if student_beyond(middle, df) > beyond { low = middle } else { high = middle }
    }
    f64::midpoint(low, high)
}

/// I_x(a, b), with `rest` = 1 - `x` (DLMF §8.17).
fn incomplete_beta(x: f64, rest: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if rest <= 0.0 {
        return 1.0;
    }
    let log_beta = libm::lgamma(a) + libm::lgamma(b) - libm::lgamma(a + b);
    let front = libm::exp(a * libm::log(x) + b * libm::log(rest) - log_beta);
    if x < (a + 1.0) / (a + b + 2.0) { front * fraction(x, a, b) / a } else { 1.0 - front * fraction(rest, b, a) / b }
}

/// The continued fraction of I_x(a, b) (DLMF §8.17.22), by Lentz's method.
fn fraction(x: f64, a: f64, b: f64) -> f64 {
    let nonzero = |value: f64| if value.abs() < 1e-300 { 1e-300 } else { value };
    let (mut c, mut d) = (1.0, 1.0 / nonzero(1.0 - (a + b) * x / (a + 1.0)));
    let mut value = d;
    for step in 1..MAX_TERMS {
        let m = f64::from(step);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let mut change = 1.0;
        for coefficient in [even, odd] {
            d = 1.0 / nonzero(1.0 + coefficient * d);
            c = nonzero(1.0 + coefficient / c);
            change = c * d;
            value *= change;
        }
        if (change - 1.0).abs() < PRECISION {
            break;
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(found: f64, expected: f64) {
        assert!((found - expected).abs() <= 1e-10 * expected.abs(), "{found} instead of {expected}");
    }

    /// `scipy.stats`: `2 * norm.sf(z)`, `chi2.sf(x, df)`, `2 * t.sf(t, df)`, `t.ppf(0.975, df)`; SciPy 1.17.1.
    #[test]
    fn tails_equal_those_of_scipy() {
        for (z, expected) in
            [(0.5, 0.617_075_077_451_973_8), (1.96, 0.049_995_790_296_440_87), (8.0, 1.244_192_114_854_348e-15)]
        {
            near(normal_beyond(z), expected);
            near(normal_beyond(-z), expected);
        }
        for (x, df, expected) in [
            (0.1, 1, 0.751_829_634_045_849_2),
            (3.84, 1, 0.050_043_521_248_705_19),
            (12.5, 2, 0.001_930_454_136_227_709_5),
            (7.3, 5, 0.199_267_789_921_242_14),
            (40.0, 6, 4.555_149_505_589_212_5e-7),
            (120.0, 99, 0.074_243_855_805_966_92),
        ] {
            near(chi_square_above(x, df), expected);
        }
        for (t, df, expected) in [
            (0.3, 1.0, 0.814_452_841_844_515_4),
            (2.1, 4.0, 0.103_653_286_317_602_18),
            (1.5, 28.0, 0.144_806_818_042_405_5),
            (6.2, 300.0, 1.865_181_545_737_682e-9),
            (2.5, 100_000.0, 0.012_420_919_192_559_051),
        ] {
            near(student_beyond(t, df), expected);
        }
        for (df, expected) in [
            (1.0, 12.706_204_736_174_694),
            (2.0, 4.302_652_729_749_462),
            (10.0, 2.228_138_851_986_274),
            (425.0, 1.965_561_458_832_462_6),
        ] {
            near(student_bound(0.05, df), expected);
        }
    }
}
