//! Amplification by sampling: Poisson sampling and sampling of a fixed size.
//!
//! The two have different neighbours, and the figure of one must not be quoted for the other. Under Poisson sampling a
//! participant is added or removed; under fixed-size sampling one is replaced, which moves a sum by twice the clipping
//! norm.

use super::RdpCurve;
use super::special::{ln_add, ln_binomial, ln_erfc};

/// One step of the Poisson-subsampled *continuous* Gaussian with sampling rate `q` in (0, 1] and noise multiplier `z`
/// above 0 (Mironov, Talwar, Zhang 2019), adding or removing one participant, at integer and fractional orders. For
/// planning and comparison: what is released is discrete, and charged by [`poisson_sampled`].
#[must_use]
pub fn poisson_gaussian(q: f64, z: f64) -> RdpCurve {
    // At low fractional orders the series' bound is many times the divergence, and above that of higher orders.
    RdpCurve::from_orders(|order| poisson_gaussian_at(q, z, order)).rising()
}

/// The same at one order above 1, at most 1024; NaN for fractional orders beyond 999.
#[must_use]
pub fn poisson_gaussian_at(q: f64, z: f64, order: f64) -> f64 {
    if q >= 1.0 {
        return order / (2.0 * z * z);
    }
    let ln_moment = if order.fract() == 0.0 { ln_moment_integer(q, z, order) } else { ln_moment(q, z, order) };
    ln_moment / (order - 1.0)
}

fn ln_moment_integer(q: f64, z: f64, order: f64) -> f64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an order of the table")]
    let order = order as u32;
    (0..=order).fold(f64::NEG_INFINITY, |sum, i| {
        let (i_real, rest) = (f64::from(i), f64::from(order - i));
        let term = ln_binomial(order, i) + rest * libm::log1p(-q) + i_real * libm::log(q);
        ln_add(sum, term + (i_real * i_real - i_real) / (2.0 * z * z))
    })
}

/// The two series of section 3.3. The coefficients beyond the order alternate in sign; their magnitudes are added, as
/// dp-accounting does: never too little, and figures compare. (With their signs they add up to the divergence, which rises with
/// the order. Without, they bound it, and the bound need not rise: divided by `order - 1`, the little that is too much becomes
/// much as the order falls to 1.) Their magnitudes fall like `(1 + i)^-(1 + order)` or faster,
/// and neither side's other factor ever grows with `i`, so what is left after the last term is at most it times
/// `(1 + i) / order`: low orders, whose series converge slowly, are bounded rather than given up.
fn ln_moment(q: f64, z: f64, order: f64) -> f64 {
    const STEPS: u32 = 1000;
    let (ln_q, ln_rest) = (libm::log(q), libm::log1p(-q));
    let middle = z * z * libm::log(1.0 / q - 1.0) + 0.5;
    let width = std::f64::consts::SQRT_2 * z;
    let (mut sum, mut ln_coefficient, mut last) = (f64::NEG_INFINITY, 0.0, f64::NEG_INFINITY);
    for step in 0..STEPS {
        let i = f64::from(step);
        let j = order - i;
        let half = -std::f64::consts::LN_2;
        let left = i * ln_q + j * ln_rest + (i * i - i) / (2.0 * z * z) + half + ln_erfc((i - middle) / width);
        let right = j * ln_q + i * ln_rest + (j * j - j) / (2.0 * z * z) + half + ln_erfc((middle - j) / width);
        last = ln_coefficient + ln_add(left, right);
        sum = ln_add(sum, last);
        if i > order && last < sum - 35.0 {
            return sum;
        }
        ln_coefficient += libm::log((j / (i + 1.0)).abs());
    }
    if order < f64::from(STEPS - 1) { ln_add(sum, last + libm::log(f64::from(STEPS) / order)) } else { f64::NAN }
}

/// One Poisson-subsampled step of any mechanism whose Rényi bound is known at integer orders (Zhu and Wang 2019,
/// Theorem 5, the general bound), adding or removing one participant; never above the mechanism without sampling.
#[must_use]
pub fn poisson_sampled(q: f64, bound: impl Fn(u32) -> f64) -> RdpCurve {
    if q >= 1.0 {
        return RdpCurve::from_integer_orders(bound);
    }
    let (ln_q, ln_rest) = (libm::log(q), libm::log1p(-q));
    RdpCurve::from_integer_orders(|order| {
        let alpha = f64::from(order);
        let mut sum = (alpha - 1.0) * ln_rest + libm::log1p((alpha - 1.0) * q);
        for l in 2..=order {
            let ways = ln_binomial(order, l) + f64::from(order - l) * ln_rest + f64::from(l) * ln_q;
            let factor = if l == 2 { 0.0 } else { libm::log(3.0) };
            sum = ln_add(sum, factor + ways + f64::from(l - 1) * bound(l));
        }
        // The smallest values drown in the rounding of their own sum; its error is what they are at least.
        (sum.max(0.0) / (alpha - 1.0) + f64::EPSILON * alpha).min(bound(order))
    })
}

/// One step of a mechanism on a cohort of a fixed size drawn without replacement, with `q` the fraction drawn and `bound`
/// its Rényi bound under *replacing* one participant (Wang, Balle, Kasiviswanathan 2019, Theorem 9, general part).
#[must_use]
pub fn without_replacement(q: f64, bound: impl Fn(u32) -> f64) -> RdpCurve {
    fixed_size(q, &bound, |l| libm::log(2.0) + f64::from(l - 1) * bound(l))
}

/// The same for the *continuous* Gaussian with noise multiplier `z` relative to what replacing one participant moves. For
/// planning and comparison.
#[must_use]
pub fn gaussian_without_replacement(q: f64, z: f64) -> RdpCurve {
    let bound = |order: u32| f64::from(order) / (2.0 * z * z);
    let differences: Vec<f64> = (0..=DIFFERENCES).map(|l| ln_difference(l, &bound)).collect();
    fixed_size(q, &bound, |l| {
        let plain = libm::log(2.0) + f64::from(l - 1) * bound(l);
        let (low, high) = (2 * (l / 2), 2 * l.div_ceil(2));
        match (differences.get(low as usize), differences.get(high as usize)) {
            (Some(low), Some(high)) => plain.min(libm::log(4.0) + 0.5 * (low + high)),
            _ => plain,
        }
    })
}

/// `third(l)` bounds the logarithm of the l-th term's moment, from 3.
fn fixed_size(q: f64, bound: &impl Fn(u32) -> f64, third: impl Fn(u32) -> f64) -> RdpCurve {
    if q >= 1.0 {
        return RdpCurve::from_integer_orders(bound);
    }
    let ln_q = libm::log(q);
    let second = bound(2);
    let ln_second = (libm::log(4.0) + libm::log(libm::expm1(second))).min(second + libm::log(2.0));
    RdpCurve::from_integer_orders(|order| {
        let sum = (2..=order).fold(0.0, |sum, l| {
            let moment = if l == 2 { ln_second } else { third(l) };
            ln_add(sum, f64::from(l) * ln_q + ln_binomial(order, l) + moment)
        });
        (sum / f64::from(order - 1)).min(bound(order))
    })
}

/// Beyond these the alternating sum has no digits left.
const DIFFERENCES: u32 = 64;

/// `ln` of an upper bound on the forward difference `sum_i (-1)^(l-i) C(l, i) exp((i-1) bound(i))`. A bound only where
/// `bound` is the mechanism's very divergence, as it is for Gaussians; rounding errors are added.
fn ln_difference(l: u32, bound: &impl Fn(u32) -> f64) -> f64 {
    let term = |i: u32| {
        let moment = if i < 2 { 0.0 } else { f64::from(i - 1) * bound(i) };
        ln_binomial(l, i) + moment
    };
    let largest = (0..=l).map(term).fold(f64::NEG_INFINITY, f64::max);
    let (mut sum, mut size) = (0.0, 0.0);
    for i in 0..=l {
        let value = libm::exp(term(i) - largest);
        sum += if (l - i).is_multiple_of(2) { value } else { -value };
        size += value * (500.0 + term(i).abs());
    }
    largest + libm::log(sum.max(0.0) + 8.0 * f64::EPSILON * size)
}

#[cfg(test)]
mod tests {
    use super::super::ORDERS;
    use super::*;

    /// The moment by integration, in the direction that is known to be the larger.
    fn integrated(q: f64, z: f64, order: f64) -> f64 {
        let (low, high, steps) = (-12.0 * z, 14.0 * z + 2.0 * order, 200_000);
        let width = (high - low) / f64::from(steps);
        let sum: f64 = (0..=steps)
            .map(|k| {
                let x = low + f64::from(k) * width;
                let ratio = 1.0 - q + q * ((2.0 * x - 1.0) / (2.0 * z * z)).exp();
                (-x * x / (2.0 * z * z)).exp() * ratio.powf(order) * width
            })
            .sum();
        (sum / (z * (2.0 * std::f64::consts::PI).sqrt())).ln() / (order - 1.0)
    }

    #[test]
    fn bounds_what_integration_says() {
        for (q, z) in [(0.01, 1.0), (0.1, 2.0), (0.5, 5.0), (0.25, 0.8)] {
            let (gaussian, general) = (poisson_gaussian(q, z), poisson_sampled(q, |l| f64::from(l) / (2.0 * z * z)));
            for order in [1.5, 2.0, 3.0, 4.5, 8.0] {
                let at = ORDERS.iter().position(|&known| (known - order).abs() < 1e-9).unwrap();
                let exact = integrated(q, z, order);
                assert!(gaussian.values()[at] >= exact * (1.0 - 1e-6), "{q} {z} {order}");
                assert!(general.values()[at] >= exact * (1.0 - 1e-6), "{q} {z} {order}");
                if order.fract() == 0.0 {
                    assert!((gaussian.values()[at] / exact - 1.0).abs() < 1e-6, "{q} {z} {order}");
                }
            }
        }
    }

    #[test]
    fn sampling_never_costs_more_than_none() {
        let bound = |l: u32| f64::from(l) / 2.0;
        let none = RdpCurve::from_integer_orders(bound);
        for q in [1e-6, 0.01, 0.5, 0.999, 1.0] {
            for curve in [poisson_sampled(q, bound), without_replacement(q, bound)] {
                let pairs = curve.values().iter().zip(none.values());
                assert!(pairs.into_iter().all(|(sampled, all)| *sampled <= all * (1.0 + 1e-12)), "{q}");
            }
        }
        assert_eq!(poisson_sampled(1.0, bound), none);
    }

    #[test]
    fn fixed_size_is_no_better_for_what_is_not_gaussian() {
        let (general, gaussian) =
            (without_replacement(0.05, |l| f64::from(l) / 32.0), gaussian_without_replacement(0.05, 4.0));
        assert!(general.values().iter().zip(gaussian.values()).all(|(a, b)| a >= b));
    }
}
