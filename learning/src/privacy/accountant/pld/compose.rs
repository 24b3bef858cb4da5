//! Composition of the losses of several releases.

use rustfft::num_complex::Complex;

use super::losses::{LossPair, Losses, POINTS_MAX, PldError, TiltedError};
use super::transform::RealTransform;

/// Mass lost by a composition on each side of its window, at most; counted as error.
const WINDOW_TAIL: f64 = 1e-15;

/// Compositions are most accurate around the loss exceeded with this probability.
const FOCUS: f64 = 1e-7;

#[derive(Clone, Debug)]
pub struct Composed {
    remove: Losses,
    add: Losses,
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

/// Composes each release the given number of times.
///
/// # Errors
/// Any [`PldError`] except those of a single release.
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
    let (lowest, transform) = ((low / first.grid).floor() as i64, RealTransform::at_least(span as usize));
    let size = transform.len();
    let (tilted, rounding) = convolve(releases, rate, &transform);
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

/// The releases to compose.
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

    /// The interval with all but [`WINDOW_TAIL`] of the tilted sum on each side, by Chernoff's bound.
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

/// Minimum of a unimodal function: walks downhill from `start` in factors of 1.4 and returns the point and the value
/// there.
fn least(start: f64, of: impl Fn(f64) -> f64) -> (f64, f64) {
    let mut best = (start, of(start));
    for factor in [1.0 / 1.4, 1.4] {
        let mut rate = start;
        loop {
            rate *= factor;
            let value = of(rate);
            // Skips points whose moment has overflowed or vanished.
            if value < best.1 && value.is_finite() {
                best = (rate, value);
            } else {
                break;
            }
        }
    }
    best
}

/// The circular convolution of the distributions tilted by `rate`, and a bound on the sum of its rounding errors.
fn convolve(releases: &[(&Losses, u64)], rate: f64, transform: &RealTransform) -> (Vec<f64>, f64) {
    let size = transform.len();
    let mut product = vec![Complex::new(1.0, 0.0); size / 2 + 1];
    let mut count = 0;
    for &(losses, times) in releases.iter().filter(|&&(_, times)| times > 0) {
        let mut circle = vec![0.0; size];
        let ln_moment = losses.ln_moment(rate);
        for (index, mass) in losses.mass.iter().enumerate().filter(|&(_, &mass)| mass > 0.0) {
            circle[index % size] += mass * libm::exp(rate * losses.at(index) - ln_moment);
        }
        let exponent = u32::try_from(times).unwrap_or(u32::MAX);
        let spectrum = transform.forward(&circle);
        product.iter_mut().zip(spectrum).for_each(|(product, value)| *product *= value.powu(exponent));
        count += times;
    }
    // Of a real signal: the first and the middle coefficient are real.
    product[0].im = 0.0;
    if let Some(last) = product.last_mut() {
        last.im = 0.0;
    }
    // Each coefficient is off by one rounding per level of the transform, and its power by that times the exponent; by
    // Cauchy-Schwarz the errors of all points sum to at most the norm of the coefficients' errors.
    let norm = (2.0 * product.iter().map(Complex::norm_sqr).sum::<f64>()).sqrt();
    let error = f64::EPSILON * (size as f64).log2() * (count as f64 + 1.0) * norm;
    (transform.backward(product), error)
}
