//! Zero-concentrated differential privacy: `rho` adds up; its optimal conversion to epsilon.

/// Of an interval, down to a part in 10^15.
const HALVINGS: u32 = 50;

/// Smallest `delta` at which `rho`-zCDP implies (epsilon, delta)-DP: the infimum over real orders of Canonne, Kamath and
/// Steinke's bound (2020, Corollary 13).
#[must_use]
pub fn delta(rho: f64, epsilon: f64) -> f64 {
    if rho <= 0.0 {
        return 0.0;
    }
    // The exponent is convex in the order; bisect its derivative.
    let (mut low, mut high) = (1.01, (epsilon + 1.0) / (2.0 * rho) + 2.0);
    for _ in 0..HALVINGS {
        let order = 0.5 * (low + high);
        if (2.0 * order - 1.0) * rho - epsilon + libm::log1p(-1.0 / order) < 0.0 { low = order } else { high = order }
    }
    let order = high;
    let exponent = (order - 1.0) * (order * rho - epsilon) + order * libm::log1p(-1.0 / order);
    (libm::exp(exponent) / (order - 1.0)).min(1.0)
}

/// Smallest epsilon at `delta`, rounded up; `delta` lies between 0 and 1.
#[must_use]
pub fn epsilon(rho: f64, delta: f64) -> f64 {
    if rho <= 0.0 {
        return 0.0;
    }
    if !rho.is_finite() {
        return f64::INFINITY;
    }
    let (mut low, mut high) = (0.0, rho + 2.0 * (rho * libm::log(1.0 / delta)).sqrt());
    for _ in 0..HALVINGS {
        let middle = 0.5 * (low + high);
        if self::delta(rho, middle) <= delta { high = middle } else { low = middle }
    }
    high
}
