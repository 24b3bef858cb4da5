//! Rényi differential privacy at a fixed set of orders: curves add up over releases and convert to (epsilon, delta) at
//! the end.

/// Orders 1.1, 1.2 … 10.9, 11 … 63, 128, 256, 512, 1024: those of Google's dp-accounting, so that figures compare.
pub static ORDERS: std::sync::LazyLock<Vec<f64>> = std::sync::LazyLock::new(|| {
    let tenths = (11..110).map(|tenth| f64::from(tenth) / 10.0);
    tenths.chain((11..64).map(f64::from)).chain([128.0, 256.0, 512.0, 1024.0]).collect()
});

/// An upper bound on the Rényi divergence at each of [`ORDERS`]; infinite if unknown.
#[derive(Clone, Debug, PartialEq)]
pub struct RdpCurve(Vec<f64>);

impl RdpCurve {
    /// The curve of zero releases.
    #[must_use]
    pub fn zero() -> Self {
        Self(vec![0.0; ORDERS.len()])
    }

    /// A bound known at every order.
    #[must_use]
    pub fn from_orders(bound: impl Fn(f64) -> f64) -> Self {
        Self(ORDERS.iter().map(|&order| sanitize(bound(order))).collect())
    }

    /// A bound known at integer orders from 2. In between, `(order - 1) * bound` is convex in the order, so the chord is a
    /// bound too.
    #[must_use]
    pub fn from_integer_orders(bound: impl Fn(u32) -> f64) -> Self {
        let moment = |order: u32| if order == 1 { 0.0 } else { f64::from(order - 1) * sanitize(bound(order)) };
        let mut known: Vec<Option<f64>> = vec![None; 1025];
        let mut at = |order: u32| *known[order as usize].get_or_insert_with(|| moment(order));
        Self(
            ORDERS
                .iter()
                .map(|&order| {
                    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "1 to 1024")]
                    let below = order.floor() as u32;
                    let part = order - f64::from(below);
                    if part == 0.0 {
                        return at(below) / (order - 1.0);
                    }
                    sanitize(((1.0 - part) * at(below) + part * at(below + 1)) / (order - 1.0))
                })
                .collect(),
        )
    }

    /// Each bound lowered to the least of those at higher orders, which bound it too: Rényi divergences do not fall as the order rises (van
    /// Erven and Harremoës 2014, Theorem 3), so `r(a) <= r(b)` for `a <= b`. The epsilon of a single curve stays the same: of two orders
    /// with the same bound the higher one converts to less, since `ln(1 - 1/a) - ln(delta a)/(a - 1)` has the derivative `ln(delta a)/(a -
    /// 1)^2`, which is below 0 where `delta a < 1`.
    #[must_use]
    pub(super) fn rising(mut self) -> Self {
        let mut least = f64::INFINITY;
        for bound in self.0.iter_mut().rev() {
            least = least.min(*bound);
            *bound = least;
        }
        self
    }

    /// The bounds, in the order of [`ORDERS`].
    #[must_use]
    pub fn values(&self) -> &[f64] {
        &self.0
    }

    pub fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(sum, value)| *sum += value);
    }

    /// The higher bound at each order: it bounds both releases.
    #[must_use]
    pub fn max(&self, other: &Self) -> Self {
        Self(self.0.iter().zip(&other.0).map(|(&one, &another)| one.max(another)).collect())
    }

    /// The same release `times` times.
    #[must_use]
    pub fn times(&self, times: u64) -> Self {
        let times = times as f64;
        // 0, not NaN, for zero releases.
        Self(self.0.iter().map(|&value| if times == 0.0 { 0.0 } else { value * times }).collect())
    }

    /// The smallest epsilon at `delta` over all orders (Canonne, Kamath, Steinke 2020, Proposition 12), and its order; infinity if all
    /// orders fail. `delta` lies between 0 and 1.
    #[must_use]
    pub fn epsilon(&self, delta: f64) -> (f64, f64) {
        let candidates = ORDERS.iter().zip(&self.0).filter(|&(&order, _)| order > 1.01);
        candidates.fold((f64::INFINITY, f64::NAN), |best, (&order, &rdp)| {
            let epsilon = if delta * delta + libm::expm1(-rdp) > 0.0 {
                0.0
            } else {
                rdp + libm::log1p(-1.0 / order) - libm::log(delta * order) / (order - 1.0)
            };
            let epsilon = epsilon.max(0.0);
            if epsilon < best.0 { (epsilon, order) } else { best }
        })
    }
}

/// Replaces NaN, which bounds nothing, by infinity.
fn sanitize(bound: f64) -> f64 {
    if bound.is_nan() { f64::INFINITY } else { bound.max(0.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_dp_accountings() {
        assert_eq!(ORDERS.len(), 99 + 53 + 4);
        assert_eq!((ORDERS[0], ORDERS[98], ORDERS[99], ORDERS[151]), (1.1, 10.9, 11.0, 63.0));
    }

    #[test]
    fn converts_as_dp_accountings_own_test() {
        // Pure RDP of 1.1 at orders 2 to 32, delta 1e-5.
        let curve = RdpCurve::from_orders(|order| if (2.0..=32.0).contains(&order) { 1.1 } else { f64::INFINITY });
        let (epsilon, order) = curve.epsilon(1e-5);
        assert_eq!(order, 32.0);
        assert!((epsilon - 1.327_838_061_76).abs() < 1e-10, "{epsilon}");
        let gaussian = RdpCurve::from_orders(|order| order / (2.0 * 4.530_877_117_f64.powi(2)));
        assert!((gaussian.epsilon(1e-6).0 - 1.0).abs() < 1e-4);
    }

    #[test]
    fn the_chord_bounds_a_gaussian() {
        let chord = RdpCurve::from_integer_orders(|order| f64::from(order) / 8.0);
        for (&order, &value) in ORDERS.iter().zip(chord.values()) {
            assert!(value >= order / 8.0 - 1e-12, "{order}");
            assert!(value <= order / 8.0 + 0.2, "{order} {value}");
        }
    }

    #[test]
    fn nothing_costs_nothing_and_everything_infinitely_much() {
        assert_eq!(RdpCurve::zero().epsilon(1e-5).0, 0.0);
        let unknown = RdpCurve::from_orders(|_| f64::NAN);
        assert_eq!(unknown.epsilon(1e-5).0, f64::INFINITY);
        assert_eq!(unknown.times(0), RdpCurve::zero());
    }
}
