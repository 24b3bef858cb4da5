//! The losses of a Gaussian with a sampled cohort.

use super::super::special::{normal_between, normal_between_error};
use super::losses::{LossPair, Losses, Mass, POINTS_MAX, PldError};

/// `P = (1-q) N(0, z^2) + q N(1, z^2)` against `Q = N(0, z^2)`.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Sampled {
    q: f64,
    z: f64,
}

/// The probabilities of an interval and their error bounds.
#[derive(Clone, Copy, Debug)]
struct Cell {
    without: Mass,
    mixture: Mass,
}

impl Sampled {
    pub(in super::super) fn new(q: f64, z: f64) -> Result<Self, PldError> {
        if !(0.05..=10_000.0).contains(&z) {
            return Err(PldError::Noise(z));
        }
        if !(q > 0.0 && q <= 1.0) {
            return Err(PldError::Rate(q));
        }
        Ok(Self { q, z })
    }

    /// The losses at the two points at `reach` standard deviations outside both means.
    pub(in super::super) fn span(&self, reach: f64) -> (f64, f64) {
        (self.loss(-reach * self.z), self.loss(1.0 + reach * self.z))
    }

    /// Approximate mean absolute loss under the mixture, and its variance, for choosing a grid.
    pub(in super::super) fn moments(&self, points: u32) -> (f64, f64) {
        const SIGMAS: f64 = 8.0;
        let (low, high) = (-SIGMAS * self.z, 1.0 + SIGMAS * self.z);
        let bell = |x: f64| libm::exp(-0.5 * (x / self.z) * (x / self.z));
        let (mut mass, mut size, mut first, mut second) = (0.0, 0.0, 0.0, 0.0);
        for point in 0..points {
            let x = low + (high - low) * (f64::from(point) + 0.5) / f64::from(points);
            let (weight, loss) = ((1.0 - self.q) * bell(x) + self.q * bell(x - 1.0), self.loss(x));
            mass += weight;
            size += weight * loss.abs();
            first += weight * loss;
            second += weight * loss * loss;
        }
        (size / mass, second / mass - (first / mass) * (first / mass))
    }

    /// `ln(P/Q)` at `x`; rises with `x`.
    fn loss(&self, x: f64) -> f64 {
        let exponent = (2.0 * x - 1.0) / (2.0 * self.z * self.z);
        let rest = 1.0 - self.q;
        // Without sampling, uses the exponent itself, which would be lost next to a one.
        if rest == 0.0 {
            exponent
        } else if exponent > 30.0 {
            exponent + libm::log(self.q + rest * libm::exp(-exponent))
        } else if exponent < -1.0 {
            libm::log(rest + self.q * libm::exp(exponent))
        } else {
            libm::log1p(self.q * libm::expm1(exponent))
        }
    }

    /// The point with loss `l`; minus infinity if every loss is larger.
    pub(super) fn point(&self, l: f64) -> f64 {
        let rest = 1.0 - self.q;
        if rest == 0.0 {
            return self.z * self.z * l + 0.5;
        }
        // (e^l - (1 - q)) / q
        let ratio = if l < -1.0 { (libm::exp(l) - rest) / self.q } else { 1.0 + libm::expm1(l) / self.q };
        if ratio <= 0.0 {
            return f64::NEG_INFINITY;
        }
        self.z * self.z * libm::log(ratio) + 0.5
    }

    /// Probabilities of `(a, b]` under N(0, z^2) and under the mixture.
    pub(super) fn between(&self, a: f64, b: f64) -> (f64, f64) {
        let without = normal_between(a / self.z, b / self.z);
        let with = normal_between((a - 1.0) / self.z, (b - 1.0) / self.z);
        (without, (1.0 - self.q) * without + self.q * with)
    }

    /// The same, with error bounds.
    fn cell(&self, a: f64, b: f64) -> Cell {
        let (without, mixture) = self.between(a, b);
        let error = normal_between_error(a / self.z, b / self.z);
        let with_error = normal_between_error((a - 1.0) / self.z, (b - 1.0) / self.z);
        Cell {
            without: Mass { value: without, error },
            mixture: Mass { value: mixture, error: (1.0 - self.q) * error + self.q * with_error },
        }
    }

    /// Both directions on a grid that holds the losses from `low` to `high`: those of `N(0, z^2)` against the mixture
    /// are those of the mixture against `N(0, z^2)` with their sign changed. Mass outside the grid goes to the lowest
    /// point of one direction, which bounds its losses, and to infinity in the other.
    pub(in super::super) fn pair(&self, grid: f64, low: f64, high: f64) -> Result<LossPair, PldError> {
        let (lowest, highest) = ((low / grid).floor() - 1.0, (high / grid).ceil() + 1.0);
        let points = highest - lowest;
        if !(0.0..=POINTS_MAX + 8.0).contains(&points) {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturating is meant")]
            return Err(PldError::Span(points as u64));
        }
        #[expect(clippy::cast_possible_truncation, reason = "checked")]
        let (mut remove, mut add) = (
            Losses::between(grid, lowest as i64, highest as i64),
            Losses::between(grid, -highest as i64, -lowest as i64),
        );
        let last = remove.mass.len() - 2;
        let mut from = self.point(remove.at(0));
        (add.infinite, remove.mass[0]) = self.between(f64::NEG_INFINITY, from);
        for index in 0..=last {
            let to = self.point(remove.at(index + 1));
            let cell = self.cell(from, to);
            remove.split(index, cell.mixture, cell.without);
            add.split(last - index, cell.without, cell.mixture);
            from = to;
        }
        let above = self.between(from, f64::INFINITY);
        add.mass[0] += above.0;
        remove.infinite = above.1;
        remove.trim();
        add.trim();
        Ok(LossPair { remove, add })
    }
}
