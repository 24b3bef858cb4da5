//! Tails of the binomial and chi-square distributions, to about 1e-12.

/// `P[Binomial(trials, success) = k]` for all `k` from 0 to `trials`.
pub(super) fn masses(trials: u32, success: f64) -> Vec<f64> {
    if success >= 1.0 {
        return (0..=trials).map(|k| if k == trials { 1.0 } else { 0.0 }).collect();
    }
    let (ln_yes, ln_no) = (libm::log(success), libm::log1p(-success));
    let all = libm::lgamma(f64::from(trials) + 1.0);
    let mass = |k: u32| {
        let (yes, no) = (f64::from(k), f64::from(trials - k));
        let ways = all - libm::lgamma(yes + 1.0) - libm::lgamma(no + 1.0);
        let of_none = |ln: f64, times: f64| if times == 0.0 { 0.0 } else { ln * times };
        libm::exp(ways + of_none(ln_yes, yes) + of_none(ln_no, no))
    };
    (0..=trials).map(mass).collect()
}

/// `P[Binomial(trials, success) >= least]`.
pub(super) fn at_least(trials: u32, success: f64, least: u32) -> f64 {
    let masses = masses(trials, success);
    masses.get(least as usize..).unwrap_or_default().iter().rev().sum::<f64>().min(1.0)
}

/// `P[chi-square <= x]` and its complement, each accurate where it is small.
pub(super) fn chi_square(degrees: f64, x: f64) -> (f64, f64) {
    let (a, x) = (degrees / 2.0, x / 2.0);
    if x <= 0.0 {
        return (0.0, 1.0);
    }
    let front = libm::exp(a * libm::log(x) - x - libm::lgamma(a));
    if x < a + 1.0 {
        let below = front * series(a, x);
        (below, 1.0 - below)
    } else {
        let above = front * fraction(a, x);
        (1.0 - above, above)
    }
}

/// Lower incomplete gamma function, by its power series (Numerical Recipes 6.2.5), without its prefactor.
fn series(a: f64, x: f64) -> f64 {
    let (mut term, mut sum, mut n) = (1.0 / a, 1.0 / a, a);
    while term > sum * 1e-16 {
        n += 1.0;
        term *= x / n;
        sum += term;
    }
    sum
}

/// Upper incomplete gamma function, by its continued fraction (6.2.7) and Lentz's method, without its prefactor.
fn fraction(a: f64, x: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let mut b = x + 1.0 - a;
    let (mut c, mut d) = (1.0 / TINY, 1.0 / b);
    let mut h = d;
    for i in 1..100_000 {
        let i = f64::from(i);
        let an = -i * (i - a);
        b += 2.0;
        d = an * d + b;
        d = 1.0 / if d.abs() < TINY { TINY } else { d };
        c = b + an / c;
        c = if c.abs() < TINY { TINY } else { c };
        h *= d * c;
        if (d * c - 1.0).abs() < 1e-15 {
            break;
        }
    }
    h
}

/// The root, between `low` and `high`, of an increasing function.
pub(super) fn crossing(mut low: f64, mut high: f64, rising: impl Fn(f64) -> f64) -> f64 {
    for _ in 0..100 {
        let middle = f64::midpoint(low, high);
        if rising(middle) < 0.0 { low = middle } else { high = middle }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agree_with_known_values() {
        assert!((at_least(10, 0.5, 8) - 56.0 / 1024.0).abs() < 1e-14);
        assert!((masses(2000, 0.3).iter().sum::<f64>() - 1.0).abs() < 1e-10);
        assert_eq!(at_least(5, 1.0, 5), 1.0);
        assert_eq!(at_least(5, 0.0, 1), 0.0);
        assert_eq!(at_least(5, 0.5, 6), 0.0);
        // Quantiles of printed tables: 95 % at 1, 10 and 100 degrees, 0.5 % at 100.
        for (degrees, x, below) in
            [(1.0, 3.841_459, 0.95), (10.0, 18.307_038, 0.95), (100.0, 124.342_113, 0.95), (100.0, 67.327_563, 0.005)]
        {
            let (got, rest) = chi_square(degrees, x);
            assert!((got - below).abs() < 1e-7 && (got + rest - 1.0).abs() < 1e-12, "{degrees} {got}");
        }
        // Two degrees: exponential.
        assert!((chi_square(2.0, 60.0).1 / (-30_f64).exp() - 1.0).abs() < 1e-12);
        assert!((crossing(0.0, 4.0, |x| x * x - 2.0) - 2_f64.sqrt()).abs() < 1e-14);
    }
}
