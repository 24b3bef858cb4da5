//! The noise itself: what was released less what it was before the noise, which only a test or a trusted auditor knows.

use super::tails::{chi_square, crossing};
use super::{AuditError, probability};

/// How wide the noise was, as a part of what the ledger says it was.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NoiseVariance {
    /// Variance seen over variance charged for.
    pub ratio: f64,
    /// The true ratio is not below this,
    pub low: f64,
    /// nor above this, with the confidence asked for.
    pub high: f64,
}

impl NoiseVariance {
    /// Compares residuals, one for each coordinate, with the standard deviation that the ledger says. The interval is the
    /// chi-square distribution's, for normal noise: right for discrete Gaussian and Skellam noise of a few units and more.
    ///
    /// # Errors
    /// [`AuditError`]: fewer than 8, not numbers, a width that is not above 0.
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

    /// Whether the noise can have been what the ledger says: neither narrower nor wider.
    #[must_use]
    pub fn is_as_charged(&self) -> bool {
        self.low <= 1.0 && 1.0 <= self.high
    }
}

/// Probability that noise of `ratio` times the variance that was charged for is noticed by [`NoiseVariance`] in so many
/// coordinates.
///
/// # Errors
/// [`AuditError`]: fewer than 8 coordinates, a ratio that is not above 0.
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

/// Whether two releases had the same noise, or some of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Correlation {
    /// From -1 to 1; 0 for noise that was drawn anew.
    pub coefficient: f64,
    /// Probability that independent noise is correlated as much, one way or the other.
    pub p_value: f64,
}

impl Correlation {
    /// Of two releases' residuals in the same coordinates; their means are known to be 0.
    ///
    /// # Errors
    /// [`AuditError`]: fewer than 8, different lengths, not numbers, or no noise at all.
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

/// Between which chi-square lies with this probability, as much left out below as above.
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
