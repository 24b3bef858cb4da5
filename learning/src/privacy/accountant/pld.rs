//! Privacy loss distributions of the continuous Gaussian, with and without Poisson sampling, composed by FFT.
//!
//! A mechanism is described by the distribution of its privacy loss `ln(P/Q)` under `P`, for both directions of adding or
//! removing one participant. Losses are put on a grid by splitting the mass between two grid points onto both of them so
//! that its probability under `P` and under `Q` is kept ("connect the dots", Doroshenko et al. 2022): the grid mechanism is
//! never more private than the real one, and far closer to it than rounding losses up. Convolution works on the
//! distribution tilted towards the losses that matter, so that its rounding errors are small beside a small delta. What
//! tails and rounding could hide is added to delta. Tight, but a statement about continuous noise: what is released is discrete and charged by Rényi
//! bounds (docs/PRIVACY.md).

use realfft::RealFftPlanner;
use realfft::num_complex::Complex;

use super::special::{normal_between, normal_between_error};

/// Width of the grid of losses.
pub const GRID: f64 = 1e-4;
/// No distribution has more points; beyond, the grid is made coarser.
const POINTS_MAX: f64 = 4_194_304.0;
/// Standard deviations beyond which a normal tail is given up: 1.5e-23.
const REACH: f64 = 10.0;
/// Mass that a composition may lose on each side of its window; it is counted as an error.
const WINDOW_TAIL: f64 = 1e-15;
/// Compositions are computed most precisely around the loss that is exceeded with this probability.
const FOCUS: f64 = 1e-7;
/// How much of each cell is pushed up on top of what is due, since the ends of a cell are rounded too.
const SPLIT_GUARD: f64 = 1e-7;

/// Why there is no privacy loss distribution.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PldError {
    /// No noise, or noise that is no number.
    #[error("a noise multiplier must be between 0.05 and 10000 for a privacy loss distribution, not {0}")]
    Noise(f64),
    /// No probability.
    #[error("a sampling rate must be above 0 and at most 1, not {0}")]
    Rate(f64),
    /// Nothing, or too much of it.
    #[error("1 to 10^8 releases can be composed, not {0}")]
    Releases(u64),
    /// Distributions on different grids.
    #[error("the distributions have different grids; make them with the same one")]
    Grid,
    /// Losses so large, or no numbers, that they do not fit into memory on this grid.
    #[error("the losses span {0} grid points, more than can be computed: epsilon is in the hundreds")]
    Span(u64),
}

/// Losses on a grid: mass `mass[i]` at `(lowest + i) * grid`, and the rest at infinity.
#[derive(Clone, Debug)]
struct Losses {
    grid: f64,
    lowest: i64,
    mass: Vec<f64>,
    infinite: f64,
    error: TiltedError,
}

/// What rounding may have taken from the mass at a loss `l`: `size * exp(ln_scale - rate * l)` in all.
#[derive(Clone, Copy, Debug, Default)]
struct TiltedError {
    size: f64,
    rate: f64,
    ln_scale: f64,
}

impl TiltedError {
    /// Bound for all losses from `loss` on.
    fn beyond(self, loss: f64) -> f64 {
        if self.size > 0.0 { self.size * libm::exp(self.ln_scale - self.rate * loss) } else { 0.0 }
    }
}

/// One release: the losses of removing and of adding a participant.
#[derive(Clone, Debug)]
pub struct LossPair {
    remove: Losses,
    add: Losses,
}

/// Several releases.
#[derive(Clone, Debug)]
pub struct Composed {
    remove: Losses,
    add: Losses,
}

impl LossPair {
    /// The Gaussian with noise multiplier `z` on a cohort drawn with rate `q`, on a grid of [`GRID`].
    ///
    /// # Errors
    /// [`PldError::Noise`], [`PldError::Rate`].
    pub fn poisson_gaussian(q: f64, z: f64) -> Result<Self, PldError> {
        Self::poisson_gaussian_on(q, z, GRID)
    }

    /// The same on another grid: finer is tighter and slower.
    ///
    /// # Errors
    /// [`PldError::Noise`], [`PldError::Rate`].
    pub fn poisson_gaussian_on(q: f64, z: f64, grid: f64) -> Result<Self, PldError> {
        let sampled = Sampled::new(q, z)?;
        let (low, high) = sampled.span(REACH);
        sampled.pair(grid.max((high - low) / POINTS_MAX), low, high)
    }

    /// The same with every loss rounded *down*: a lower bound that guarantees nothing, to judge how tight the others are.
    ///
    /// # Errors
    /// [`PldError::Noise`], [`PldError::Rate`].
    pub fn optimistic_poisson_gaussian(q: f64, z: f64, grid: f64) -> Result<Self, PldError> {
        let mut pair = Self::poisson_gaussian_on(q, z, grid)?;
        let sampled = Sampled::new(q, z)?;
        pair.remove.round_down(|from, to| sampled.between(sampled.point(from), sampled.point(to)).1);
        pair.add.round_down(|from, to| sampled.between(sampled.point(-to), sampled.point(-from)).0);
        Ok(pair)
    }

    /// The discrete Gaussian on one integer of sensitivity `sensitivity`; only for one, since the bound of a vector
    /// depends on its direction.
    ///
    /// # Errors
    /// [`PldError::Noise`].
    pub fn discrete_gaussian(sigma: f64, sensitivity: u32) -> Result<Self, PldError> {
        let z = sigma / f64::from(sensitivity);
        if !(0.05..=10_000.0).contains(&z) || sigma > 10_000.0 {
            return Err(PldError::Noise(z));
        }
        let shift = f64::from(sensitivity);
        #[expect(clippy::cast_possible_truncation, reason = "at most 10^5")]
        let reach = (sigma * REACH).ceil() as i64 + i64::from(sensitivity);
        let weight = |x: f64| libm::exp(-0.5 * (x / sigma) * (x / sigma));
        let total: f64 = (-reach..=reach).map(|x| weight(x as f64)).sum();
        let loss = |x: f64| (shift * shift - 2.0 * x * shift) / (2.0 * sigma * sigma);
        let mut losses = Losses::spanning(GRID, loss(reach as f64), loss(-reach as f64));
        for x in -reach..=reach {
            let x = x as f64;
            let mass = weight(x) / total;
            losses.push(loss(x), mass, mass * libm::exp(-loss(x)));
        }
        // Beyond REACH standard deviations: less than 1e-22.
        losses.infinite = 1e-22;
        Ok(Self { remove: losses.clone(), add: losses })
    }
}

/// `P = (1-q) N(0, z^2) + q N(1, z^2)` against `Q = N(0, z^2)`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sampled {
    q: f64,
    z: f64,
}

/// What lies between two points: its probabilities, and what they may be off by.
#[derive(Clone, Copy, Debug)]
struct Cell {
    without: Mass,
    mixture: Mass,
}

/// A probability, and what it may be off by.
#[derive(Clone, Copy, Debug)]
struct Mass {
    value: f64,
    error: f64,
}

impl Sampled {
    pub(super) fn new(q: f64, z: f64) -> Result<Self, PldError> {
        if !(0.05..=10_000.0).contains(&z) {
            return Err(PldError::Noise(z));
        }
        if !(q > 0.0 && q <= 1.0) {
            return Err(PldError::Rate(q));
        }
        Ok(Self { q, z })
    }

    /// Losses between the two points that are `reach` standard deviations outside of both means.
    pub(super) fn span(&self, reach: f64) -> (f64, f64) {
        (self.loss(-reach * self.z), self.loss(1.0 + reach * self.z))
    }

    /// Mean of the size of a loss under the mixture, and its variance, about: to choose a grid by.
    pub(super) fn moments(&self, points: u32) -> (f64, f64) {
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
        // Without sampling the exponent itself: beside a one it would drown.
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

    /// Where the loss is `l`; minus infinity where it never is so small.
    fn point(&self, l: f64) -> f64 {
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
    fn between(&self, a: f64, b: f64) -> (f64, f64) {
        let without = normal_between(a / self.z, b / self.z);
        let with = normal_between((a - 1.0) / self.z, (b - 1.0) / self.z);
        (without, (1.0 - self.q) * without + self.q * with)
    }

    /// The same, with what they may be off by.
    fn cell(&self, a: f64, b: f64) -> Cell {
        let (without, mixture) = self.between(a, b);
        let error = normal_between_error(a / self.z, b / self.z);
        let with_error = normal_between_error((a - 1.0) / self.z, (b - 1.0) / self.z);
        Cell {
            without: Mass { value: without, error },
            mixture: Mass { value: mixture, error: (1.0 - self.q) * error + self.q * with_error },
        }
    }

    /// Both directions on a grid that holds the losses from `low` to `high`: those of `N(0, z^2)` against the mixture are
    /// those of the mixture against `N(0, z^2)` with their sign changed. What lies below or above is at the lowest point of
    /// one direction, which its losses do not exceed, and infinite in the other.
    pub(super) fn pair(&self, grid: f64, low: f64, high: f64) -> Result<LossPair, PldError> {
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

impl Losses {
    /// Empty, with room for losses from `low` to `high`.
    fn spanning(grid: f64, low: f64, high: f64) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "POINTS_MAX of them")]
        let (lowest, highest) = ((low / grid).floor() as i64, (high / grid).ceil() as i64 + 1);
        Self::between(grid, lowest, highest)
    }

    /// Empty, from the point `lowest` to the point `highest`.
    fn between(grid: f64, lowest: i64, highest: i64) -> Self {
        let mass = vec![0.0; usize::try_from(highest - lowest).unwrap_or_default() + 1];
        Self { grid, lowest, mass, infinite: 0.0, error: TiltedError::default() }
    }

    /// Without empty points at the ends: a moment at a large rate is told by the outermost mass.
    fn trim(&mut self) {
        let has_mass = |mass: &f64| *mass > 0.0;
        let first = self.mass.iter().position(has_mass).unwrap_or_default();
        let last = self.mass.iter().rposition(has_mass).unwrap_or_default();
        self.mass.truncate(last + 1);
        self.mass.drain(..first);
        self.lowest += first.cast_signed() as i64;
    }

    fn at(&self, index: usize) -> f64 {
        (self.lowest + index.cast_signed() as i64) as f64 * self.grid
    }

    /// Puts what has losses between two neighbouring points, with probability `p` under P and `q` under Q, on both: never
    /// less on the upper one than is due, whatever their errors are.
    fn split(&mut self, cell: usize, p: Mass, q: Mass) {
        let e = libm::exp(self.at(cell));
        let due = (p.value - e * q.value + (p.error + e * q.error)) / -libm::expm1(-self.grid);
        let above = (due + SPLIT_GUARD * p.value).clamp(0.0, p.value.max(0.0));
        self.mass[cell] += p.value.max(0.0) - above;
        self.mass[cell + 1] += above;
    }

    /// Puts the mass of each cell on its lower end and forgets what is infinite.
    fn round_down(&mut self, between: impl Fn(f64, f64) -> f64) {
        let last = self.mass.len() - 1;
        for cell in 0..=last {
            let from = if cell == 0 { f64::NEG_INFINITY } else { self.at(cell) };
            let to = if cell == last { f64::INFINITY } else { self.at(cell + 1) };
            self.mass[cell] = between(from, to);
        }
        self.infinite = 0.0;
    }

    /// One loss.
    fn push(&mut self, loss: f64, p: f64, q: f64) {
        #[expect(clippy::cast_possible_truncation, reason = "within the span")]
        let cell = (loss / self.grid).floor() as i64 - self.lowest;
        let exact = |value| Mass { value, error: 0.0 };
        self.split(usize::try_from(cell).unwrap_or_default().min(self.mass.len() - 2), exact(p), exact(q));
    }

    /// ln of the moment generating function at `rate`, of the finite part.
    fn ln_moment(&self, rate: f64) -> f64 {
        let shift = (rate * self.at(0)).max(rate * self.at(self.mass.len() - 1));
        // One exponential for many neighbours, from the heaviest of them on, so that nothing underflows that counts; a
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
    fn moments(&self) -> (f64, f64) {
        let mean: f64 = self.mass.iter().enumerate().map(|(index, mass)| mass * self.at(index)).sum();
        let spread = |(index, mass): (usize, &f64)| mass * (self.at(index) - mean).powi(2);
        (mean, self.mass.iter().enumerate().map(spread).sum())
    }

    /// Smallest `epsilon` of at least 0 at which `delta(epsilon)` is at most `delta`.
    fn epsilon(&self, delta: f64) -> f64 {
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
                // Nothing above and yet too much: it is all error.
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

    fn delta(&self, epsilon: f64) -> f64 {
        if epsilon < self.at(0) && self.error.size > 0.0 {
            return 1.0;
        }
        let beyond = self.mass.iter().enumerate().filter(|&(index, _)| self.at(index) > epsilon);
        let finite: f64 = beyond.map(|(index, &mass)| mass * -libm::expm1(epsilon - self.at(index))).sum();
        (self.infinite + self.error.beyond(epsilon) + finite).min(1.0)
    }
}

impl Composed {
    /// Smallest epsilon at `delta`, over both directions; infinite where `delta` is below what tails and rounding hide.
    #[must_use]
    pub fn epsilon(&self, delta: f64) -> f64 {
        self.remove.epsilon(delta).max(self.add.epsilon(delta))
    }

    /// Smallest delta at `epsilon`, over both directions.
    #[must_use]
    pub fn delta(&self, epsilon: f64) -> f64 {
        self.remove.delta(epsilon).max(self.add.delta(epsilon))
    }
}

/// Composes each release as many times as is said.
///
/// # Errors
/// Any [`PldError`] but those of a single one.
pub fn compose(releases: &[(&LossPair, u64)]) -> Result<Composed, PldError> {
    let count: u64 = releases.iter().map(|&(_, times)| times).sum();
    if !(1..=100_000_000).contains(&count) {
        return Err(PldError::Releases(count));
    }
    let remove: Vec<(&Losses, u64)> = releases.iter().map(|&(pair, times)| (&pair.remove, times)).collect();
    let add: Vec<(&Losses, u64)> = releases.iter().map(|&(pair, times)| (&pair.add, times)).collect();
    Ok(Composed { remove: compose_losses(&remove)?, add: compose_losses(&add)? })
}

fn compose_losses(releases: &[(&Losses, u64)]) -> Result<Losses, PldError> {
    let (first, _) = releases[0];
    #[expect(clippy::float_cmp, reason = "a grid is copied, never computed twice")]
    if releases.iter().any(|(losses, _)| losses.grid != first.grid) {
        return Err(PldError::Grid);
    }
    if let [(losses, 1)] = releases {
        return Ok((*losses).clone());
    }
    let sum = Sum(releases);
    let rate = sum.focus();
    let (low, high) = sum.window(rate);
    let span = (high - low) / first.grid + 2.0;
    if !(0.0..=POINTS_MAX).contains(&span) {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturating is meant")]
        return Err(PldError::Span(span as u64));
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most 2^22")]
    let (lowest, size) = ((low / first.grid).floor() as i64, fast_size(span as usize));
    let (tilted, rounding) = convolve(releases, rate, size);
    let error = TiltedError { size: rounding + 2.0 * WINDOW_TAIL, rate, ln_scale: sum.ln_moment(rate) };
    // The point `offset + i` of the sum, or that plus a multiple of `size`, is at `i` of the circle.
    let offset: i64 = releases.iter().map(|(losses, times)| losses.lowest * times.cast_signed()).sum();
    let start = usize::try_from((lowest - offset).rem_euclid(size.cast_signed() as i64)).unwrap_or_default();
    let untilt =
        |index: usize| libm::exp(error.ln_scale - rate * (lowest + index.cast_signed() as i64) as f64 * first.grid);
    let mass = (0..size).map(|index| tilted[(start + index) % size].max(0.0) * untilt(index)).collect();
    let kept: f64 = releases.iter().map(|&(losses, times)| times as f64 * libm::log1p(-losses.infinite)).sum();
    Ok(Losses { grid: first.grid, lowest, mass, infinite: (-libm::expm1(kept)).min(1.0), error })
}

/// What is to be composed.
struct Sum<'a>(&'a [(&'a Losses, u64)]);

impl Sum<'_> {
    fn over(&self, of: impl Fn(&Losses) -> f64) -> f64 {
        self.0.iter().map(|(losses, times)| *times as f64 * of(losses)).sum()
    }

    fn ln_moment(&self, rate: f64) -> f64 {
        self.over(|losses| losses.ln_moment(rate))
    }

    /// The tilt whose mean is near the loss that is exceeded with probability [`FOCUS`].
    fn focus(&self) -> f64 {
        let surprise = libm::log(1.0 / FOCUS);
        let typical = (2.0 * surprise / self.over(|losses| losses.moments().1).max(1e-30)).sqrt();
        least(typical, |rate| (self.ln_moment(rate) + surprise) / rate).0
    }

    /// Where all but [`WINDOW_TAIL`] of the sum tilted by `tilt` lies on each side, by Chernoff's bound.
    fn window(&self, tilt: f64) -> (f64, f64) {
        let (surprise, whole) = (libm::log(1.0 / WINDOW_TAIL), self.ln_moment(tilt));
        let moment = |rate: f64| self.ln_moment(tilt + rate) - whole + surprise;
        // A tilt of `focus` is sqrt(2 ln(1/FOCUS)) standard deviations.
        let start = tilt * (surprise / libm::log(1.0 / FOCUS)).sqrt();
        let high = least(start, |rate| moment(rate) / rate).1;
        let low = -least(start, |rate| moment(-rate) / rate).1;
        (low.max(self.over(|l| l.at(0))), high.min(self.over(|l| l.at(l.mass.len() - 1))))
    }
}

/// Walks downhill from `start` in factors of 1.4, for functions with one valley: where it ends, and how low it is there.
fn least(start: f64, of: impl Fn(f64) -> f64) -> (f64, f64) {
    let mut best = (start, of(start));
    for factor in [1.0 / 1.4, 1.4] {
        let mut rate = start;
        loop {
            rate *= factor;
            let value = of(rate);
            // Not where a moment has overflowed or is lost.
            if value < best.1 && value.is_finite() {
                best = (rate, value);
            } else {
                break;
            }
        }
    }
    best
}

/// A power of two or three times one.
fn fast_size(least: usize) -> usize {
    let power = least.next_power_of_two().max(4);
    if power / 4 * 3 >= least { power / 4 * 3 } else { power }
}

/// The circular convolution of the distributions tilted by `rate`, and a bound on the sum of its rounding errors.
fn convolve(releases: &[(&Losses, u64)], rate: f64, size: usize) -> (Vec<f64>, f64) {
    let mut planner = RealFftPlanner::<f64>::new();
    let (forward, backward) = (planner.plan_fft_forward(size), planner.plan_fft_inverse(size));
    let mut product = vec![Complex::new(1.0, 0.0); size / 2 + 1];
    let mut spectrum = forward.make_output_vec();
    let mut count = 0;
    for &(losses, times) in releases.iter().filter(|&&(_, times)| times > 0) {
        let mut circle = vec![0.0; size];
        let ln_moment = losses.ln_moment(rate);
        for (index, mass) in losses.mass.iter().enumerate().filter(|&(_, &mass)| mass > 0.0) {
            circle[index % size] += mass * libm::exp(rate * losses.at(index) - ln_moment);
        }
        // Lengths are the plan's own, which is all that can fail.
        let transformed = forward.process(&mut circle, &mut spectrum);
        debug_assert!(transformed.is_ok());
        let exponent = u32::try_from(times).unwrap_or(u32::MAX);
        product.iter_mut().zip(&spectrum).for_each(|(product, value)| *product *= value.powu(exponent));
        count += times;
    }
    // Of a real signal: the first and the middle coefficient are real.
    product[0].im = 0.0;
    if let Some(last) = product.last_mut() {
        last.im = 0.0;
    }
    // Each coefficient is off by a rounding per level of the transform, and its power by that as many times as it is
    // multiplied; by Cauchy and Schwarz the errors of all points add up to no more than the norm of the coefficients'.
    let norm = (2.0 * product.iter().map(Complex::norm_sqr).sum::<f64>()).sqrt();
    let error = f64::EPSILON * (size as f64).log2() * (count as f64 + 1.0) * norm;
    let mut circle = vec![0.0; size];
    let transformed = backward.process(&mut product, &mut circle);
    debug_assert!(transformed.is_ok());
    circle.iter_mut().for_each(|mass| *mass /= size as f64);
    (circle, error)
}
