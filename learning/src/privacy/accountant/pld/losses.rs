//! Losses on a grid: placing mass on it, and computing epsilon and delta from it.

/// Extra share of each cell's mass to push up, since the ends of a cell are rounded too.
const SPLIT_GUARD: f64 = 1e-7;

/// Maximum number of points; larger distributions get a coarser grid.
pub(super) const POINTS_MAX: f64 = 4_194_304.0;

/// Reasons for a missing privacy loss distribution.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PldError {
    /// The noise multiplier is 0, too large or NaN.
    #[error("a noise multiplier must be between 0.05 and 10000 for a privacy loss distribution, not {0}")]
    Noise(f64),
    /// The rate is not above 0 and at most 1.
    #[error("a sampling rate must be above 0 and at most 1, not {0}")]
    Rate(f64),
    /// Zero releases, or too many.
    #[error("1 to 10^8 releases can be composed, not {0}")]
    Releases(u64),
    /// Distributions on different grids.
    #[error("the distributions have different grids; make them with the same one")]
    Grid,
    /// The losses are too large, or not finite, for this grid to fit into memory.
    #[error("the losses span {0} grid points, more than can be computed: epsilon is in the hundreds")]
    Span(u64),
}

/// One release: the losses of removing and of adding a participant.
#[derive(Clone, Debug)]
pub struct LossPair {
    pub(super) remove: Losses,
    pub(super) add: Losses,
}

/// Losses on a grid: mass `mass[i]` at `(lowest + i) * grid`, and the rest at infinity.
#[derive(Clone, Debug)]
pub(super) struct Losses {
    pub(super) grid: f64,
    pub(super) lowest: i64,
    pub(super) mass: Vec<f64>,
    pub(super) infinite: f64,
    pub(super) error: TiltedError,
}

/// Bound on the mass that rounding may have removed at a loss `l`: `size * exp(ln_scale - rate * l)` in total.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TiltedError {
    pub(super) size: f64,
    pub(super) rate: f64,
    pub(super) ln_scale: f64,
}

impl TiltedError {
    /// Bound for all losses from `loss` on.
    fn beyond(self, loss: f64) -> f64 {
        if self.size > 0.0 { self.size * libm::exp(self.ln_scale - self.rate * loss) } else { 0.0 }
    }
}

/// A probability and its error bound.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mass {
    pub(super) value: f64,
    pub(super) error: f64,
}

impl Losses {
    /// Empty, with room for losses from `low` to `high`.
    pub(super) fn spanning(grid: f64, low: f64, high: f64) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "POINTS_MAX of them")]
        let (lowest, highest) = ((low / grid).floor() as i64, (high / grid).ceil() as i64 + 1);
        Self::between(grid, lowest, highest)
    }

    /// Empty, from the point `lowest` to the point `highest`.
    pub(super) fn between(grid: f64, lowest: i64, highest: i64) -> Self {
        let mass = vec![0.0; usize::try_from(highest - lowest).unwrap_or_default() + 1];
        Self { grid, lowest, mass, infinite: 0.0, error: TiltedError::default() }
    }

    /// Drops empty points at the ends: the outermost mass dominates a moment at a large rate.
    pub(super) fn trim(&mut self) {
        let has_mass = |mass: &f64| *mass > 0.0;
        let first = self.mass.iter().position(has_mass).unwrap_or_default();
        let last = self.mass.iter().rposition(has_mass).unwrap_or_default();
        self.mass.truncate(last + 1);
        self.mass.drain(..first);
        self.lowest += first.cast_signed() as i64;
    }

    pub(super) fn at(&self, index: usize) -> f64 {
        (self.lowest + index.cast_signed() as i64) as f64 * self.grid
    }

    /// Distributes a cell's mass, with probability `p` under P and `q` under Q, over its two ends: never less on the
    /// upper end than is due, whatever the errors.
    pub(super) fn split(&mut self, cell: usize, p: Mass, q: Mass) {
        let e = libm::exp(self.at(cell));
        let due = (p.value - e * q.value + (p.error + e * q.error)) / -libm::expm1(-self.grid);
        let above = (due + SPLIT_GUARD * p.value).clamp(0.0, p.value.max(0.0));
        self.mass[cell] += p.value.max(0.0) - above;
        self.mass[cell + 1] += above;
    }

    /// Puts the mass of each cell on its lower end and drops infinite losses.
    pub(super) fn round_down(&mut self, between: impl Fn(f64, f64) -> f64) {
        let last = self.mass.len() - 1;
        for cell in 0..=last {
            let from = if cell == 0 { f64::NEG_INFINITY } else { self.at(cell) };
            let to = if cell == last { f64::INFINITY } else { self.at(cell + 1) };
            self.mass[cell] = between(from, to);
        }
        self.infinite = 0.0;
    }

    /// Appends a loss.
    pub(super) fn push(&mut self, loss: f64, p: f64, q: f64) {
        #[expect(clippy::cast_possible_truncation, reason = "within the span")]
        let cell = (loss / self.grid).floor() as i64 - self.lowest;
        let exact = |value| Mass { value, error: 0.0 };
        self.split(usize::try_from(cell).unwrap_or_default().min(self.mass.len() - 2), exact(p), exact(q));
    }

    /// ln of the moment generating function at `rate`, of the finite part.
    pub(super) fn ln_moment(&self, rate: f64) -> f64 {
        let shift = (rate * self.at(0)).max(rate * self.at(self.mass.len() - 1));
        // One exponential serves many neighbours, starting from the heaviest, so that nothing relevant underflows; a
        // product of 256 factors is off by less than 2^-44.
        const RUN: usize = 256;
        let factor = libm::exp(-rate.abs() * self.grid);
        let fall = |sum_and_weight: (f64, f64), mass: &f64| {
            let (sum, weight) = sum_and_weight;
            (sum + mass * weight, weight * factor)
        };
        let run = |(run, masses): (usize, &[f64])| {
            let (first, last) = (run * RUN, run * RUN + masses.len() - 1);
            let weight = |heaviest: usize| libm::exp(rate * self.at(heaviest) - shift);
            if rate > 0.0 {
                masses.iter().rev().fold((0.0, weight(last)), fall).0
            } else {
                masses.iter().fold((0.0, weight(first)), fall).0
            }
        };
        let sum: f64 = self.mass.chunks(RUN).enumerate().map(run).sum();
        shift + libm::log(sum)
    }

    /// Mean and variance of the finite part.
    pub(super) fn moments(&self) -> (f64, f64) {
        let mean: f64 = self.mass.iter().enumerate().map(|(index, mass)| mass * self.at(index)).sum();
        let spread = |(index, mass): (usize, &f64)| mass * (self.at(index) - mean).powi(2);
        (mean, self.mass.iter().enumerate().map(spread).sum())
    }

    /// Smallest `epsilon` of at least 0 at which `delta(epsilon)` is at most `delta`.
    pub(super) fn epsilon(&self, delta: f64) -> f64 {
        if self.infinite > delta {
            return f64::INFINITY;
        }
        // For epsilon between two points: delta(epsilon) = hidden + sum - e^(epsilon - above) weighted, with the sums over
        // losses from `above` on, of p and of p e^(above - loss).
        let (mut sum, mut weighted) = (0.0, 0.0);
        let step = libm::exp(-self.grid);
        for index in (0..self.mass.len()).rev() {
            let (point, above) = (self.at(index), self.at(index + 1));
            let excess = sum + self.infinite + self.error.beyond(point) - delta;
            if excess > 0.0 {
                // No mass above, yet too much delta: all of it is error.
                let epsilon = if weighted > 0.0 { above + libm::log(excess / weighted) } else { above };
                if epsilon >= point {
                    return epsilon.clamp(0.0, above.max(0.0));
                }
            }
            weighted = weighted * step + self.mass[index];
            sum += self.mass[index];
        }
        self.at(0).max(0.0)
    }

    pub(super) fn delta(&self, epsilon: f64) -> f64 {
        if epsilon < self.at(0) && self.error.size > 0.0 {
            return 1.0;
        }
        let beyond = self.mass.iter().enumerate().filter(|&(index, _)| self.at(index) > epsilon);
        let finite: f64 = beyond.map(|(index, &mass)| mass * -libm::expm1(epsilon - self.at(index))).sum();
        (self.infinite + self.error.beyond(epsilon) + finite).min(1.0)
    }
}
