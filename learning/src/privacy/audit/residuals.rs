//! Audits of the noise itself: the release minus the exact sum, known only to a test or a trusted auditor.

use super::tails::{chi_square, crossing};
use super::{AuditError, probability};

/// Measured variance of the noise relative to the ledger's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NoiseVariance {
    /// Measured variance over charged variance.
    pub ratio: f64,
    /// Lower confidence bound of the true ratio.
    pub low: f64,
    /// Upper confidence bound of the true ratio.
    pub high: f64,
}

impl NoiseVariance {
    /// Compares residuals, one per coordinate, with the ledger's standard deviation. The interval comes from the
    /// chi-square distribution, for normal noise; it is accurate for discrete Gaussian and Skellam noise of a few units
    /// and more.
    ///
    /// # Errors
    /// [`AuditError`]: fewer than 8 residuals, values that are not finite, or a width that is not above 0.
    pub fn of(residuals: &[f64], sigma: f64, confidence: f64) -> Result<Self, AuditError> {
        probability("confidence", confidence)?;
        let count = enough(residuals)?;
        if !(sigma.is_normal() && sigma > 0.0) {
            return Err(AuditError::NotFinite);
        }
        let ratio = residuals.iter().map(|x| (x / sigma).powi(2)).sum::<f64>() / count;
        let (low, high) = quantiles(count, confidence);
        Ok(Self { ratio, low: ratio * count / high, high: ratio * count / low })
    }

    /// Whether the ledger's variance is within the confidence bounds.
    #[must_use]
    pub fn is_as_charged(&self) -> bool {
        self.low <= 1.0 && 1.0 <= self.high
    }
}

/// Probability that [`NoiseVariance`] detects noise of `ratio` times the charged variance in this many coordinates.
///
/// # Errors
/// [`AuditError`]: fewer than 8 coordinates, or a ratio that is not above 0.
pub fn noise_power(coordinates: u32, ratio: f64, confidence: f64) -> Result<f64, AuditError> {
    probability("confidence", confidence)?;
    if coordinates < FEWEST {
        return Err(AuditError::TooFew(coordinates as usize));
    }
    if !(ratio.is_normal() && ratio > 0.0) {
        return Err(AuditError::NotFinite);
    }
    let count = f64::from(coordinates);
    let (low, high) = quantiles(count, confidence);
    Ok(chi_square(count, low / ratio).0 + chi_square(count, high / ratio).1)
}

/// Correlation between the noise of two releases, which would share noise if it is not 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Correlation {
    /// From -1 to 1; near 0 for independent noise.
    pub coefficient: f64,
    /// Probability that independent noise has at least this correlation in magnitude.
    pub p_value: f64,
}

impl Correlation {
    /// Correlates two releases' residuals over the same coordinates; their means are known to be 0.
    ///
    /// # Errors
    /// [`AuditError`]: fewer than 8 residuals, different lengths, values that are not finite, or no noise at all.
    pub fn of(first: &[f64], second: &[f64]) -> Result<Self, AuditError> {
        if first.len() != second.len() {
            return Err(AuditError::Lengths { scores: first.len(), canaries: second.len() });
        }
        let count = enough(first)?;
        enough(second)?;
        let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f64>();
        let norms = (product(first, first) * product(second, second)).sqrt();
        if !(norms.is_finite() && norms > 0.0) {
            return Err(AuditError::NotFinite);
        }
        let coefficient = (product(first, second) / norms).clamp(-1.0, 1.0);
        // Fisher's transformation, with one degree more since the means are not estimated.
        let score = libm::atanh(coefficient).abs() * (count - 2.0).sqrt();
        Ok(Self { coefficient, p_value: libm::erfc(score * std::f64::consts::FRAC_1_SQRT_2) })
    }
}

const FEWEST: u32 = 8;

fn enough(residuals: &[f64]) -> Result<f64, AuditError> {
    if residuals.len() < FEWEST as usize {
        return Err(AuditError::TooFew(residuals.len()));
    }
    if residuals.iter().any(|x| !x.is_finite()) {
        return Err(AuditError::NotFinite);
    }
    Ok(residuals.len() as f64)
}

/// The central interval of the chi-square distribution with this probability.
fn quantiles(degrees: f64, confidence: f64) -> (f64, f64) {
    let left_out = (1.0 - confidence) / 2.0;
    let top = 10.0 * degrees + 1000.0;
    let low = crossing(0.0, top, |x| chi_square(degrees, x).0 - left_out);
    let high = crossing(0.0, top, |x| left_out - chi_square(degrees, x).1);
    (low, high)
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;
    use rand_chacha::ChaCha20Rng;

    use super::*;
    use crate::privacy::{DiscreteGaussian, Sigma};

    fn noise(seed: u64, count: usize, sigma: f64) -> Vec<f64> {
        let gaussian = DiscreteGaussian::new(Sigma::at_least(sigma).unwrap());
        let mut rng = ChaCha20Rng::seed_from_u64(seed);
        (0..count).map(|_| gaussian.sample(&mut rng) as f64).collect()
    }

    #[test]
    fn honest_noise_passes_as_often_as_it_should() {
        let passed = |seed| NoiseVariance::of(&noise(seed, 500, 30.0), 30.0, 0.9).unwrap().is_as_charged();
        let count = (0..400).filter(|&seed| passed(seed)).count();
        // 360, standard deviation 6.
        assert!((336..=384).contains(&count), "{count}");
    }

    #[test]
    fn narrower_and_wider_noise_is_noticed() {
        for (factor, seed) in [(0.5, 1), (0.7_f64.sqrt(), 2), (1.3_f64.sqrt(), 3)] {
            let seen = NoiseVariance::of(&noise(seed, 2048, 50.0 * factor), 50.0, 0.999).unwrap();
            assert!(!seen.is_as_charged(), "{factor}: {seen:?}");
            assert!(seen.low < factor * factor && factor * factor < seen.high, "{seen:?}");
            assert!(noise_power(2048, factor * factor, 0.999).unwrap() > 0.999);
        }
        let size = noise_power(2048, 1.0, 0.999).unwrap();
        assert!((size - 0.001).abs() < 1e-9, "{size}");
        assert!(noise_power(10, 0.9, 0.999).unwrap() < 0.01);
    }

    #[test]
    fn reused_noise_is_noticed_and_fresh_noise_is_not() {
        let (first, second) = (noise(1, 2048, 40.0), noise(2, 2048, 40.0));
        assert!(Correlation::of(&first, &second).unwrap().p_value > 0.001);
        let same = Correlation::of(&first, &first).unwrap();
        assert!(same.coefficient > 0.999_999 && same.p_value < 1e-9, "{same:?}");
        let half: Vec<f64> = first.iter().zip(&second).map(|(a, b)| a + b).collect();
        assert!(Correlation::of(&first, &half).unwrap().p_value < 1e-9);
        // One in ten of independent pairs is below 0.1.
        let low = (0..300)
            .filter(|&k| Correlation::of(&noise(k, 64, 40.0), &noise(k + 999, 64, 40.0)).unwrap().p_value < 0.1);
        let low = low.count();
        assert!((10..=50).contains(&low), "{low}");
    }

    #[test]
    fn refuses_what_says_nothing() {
        let eight = [1.0; 8];
        assert_eq!(NoiseVariance::of(&eight[1..], 1.0, 0.9), Err(AuditError::TooFew(7)));
        assert_eq!(NoiseVariance::of(&[f64::NAN; 8], 1.0, 0.9), Err(AuditError::NotFinite));
        assert_eq!(NoiseVariance::of(&eight, 0.0, 0.9), Err(AuditError::NotFinite));
        assert_eq!(NoiseVariance::of(&eight, 1.0, 1.0), Err(AuditError::Probability("confidence")));
        assert_eq!(Correlation::of(&eight, &[0.0; 8]), Err(AuditError::NotFinite));
        assert_eq!(Correlation::of(&eight, &eight[..7]), Err(AuditError::Lengths { scores: 8, canaries: 7 }));
        assert_eq!(noise_power(7, 0.5, 0.9), Err(AuditError::TooFew(7)));
        assert_eq!(noise_power(8, 0.0, 0.9), Err(AuditError::NotFinite));
    }
}
