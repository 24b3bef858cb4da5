//! Coefficients in the units of the data, with errors and tests.

use serde::{Deserialize, Serialize};

use super::newton::Symmetric;
use super::tails::{normal_beyond, student_beyond, student_bound};
use super::variables::Term;

/// 1 minus the level of the confidence intervals.
const BEYOND: f64 = 0.05;
/// The number that a standard normal number exceeds in magnitude with that probability.
pub(super) const NORMAL_BOUND: f64 = 1.959_963_984_540_054;

/// A coefficient in the units of the data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Coefficient {
    /// `intercept`, a column, or `column[category]`, compared with category 0.
    pub name: String,
    pub estimate: f64,
    pub standard_error: f64,
    /// The estimate divided by its standard error.
    pub statistic: f64,
    /// Of the hypothesis that the coefficient is 0 (Wald): by Student's t in a linear regression, else by the normal distribution.
    pub p_value: f64,
    /// Lower end of the 95 % confidence interval.
    pub low: f64,
    /// Upper end of the 95 % confidence interval.
    pub high: f64,
}

/// How scaled coefficients become coefficients.
pub(super) struct Units<'a> {
    pub(super) terms: &'a [Term],
    /// Whether the first scaled coefficient is an intercept.
    pub(super) intercept: bool,
    /// Middle and half of the range of a scaled outcome; 0 and 1 for others.
    pub(super) outcome: (f64, f64),
    /// Factor on the covariance.
    pub(super) dispersion: f64,
    /// Degrees of freedom of Student's t.
    pub(super) freedom: Option<f64>,
}

impl Units<'_> {
    /// The coefficients at a point of the search.
    pub(super) fn coefficients(&self, point: &[f64], covariance: &Symmetric) -> Vec<Coefficient> {
        let (middle, half) = self.outcome;
        let first = usize::from(self.intercept);
        let mut table = Vec::with_capacity(point.len());
        if self.intercept {
            // The predictor at 0 of every column.
            let mut weights = vec![0.0; point.len()];
            weights[0] = half;
            for (weight, term) in weights[1..].iter_mut().zip(self.terms) {
                let (term_middle, term_half) = term.middle_and_half();
                *weight = -half * term_middle / term_half;
            }
            table.push(self.coefficient("intercept", middle, &weights, point, covariance));
        }
        for (index, term) in self.terms.iter().enumerate() {
            let mut weights = vec![0.0; point.len()];
            weights[first + index] = half / term.middle_and_half().1;
            table.push(self.coefficient(&term.name, 0.0, &weights, point, covariance));
        }
        table
    }

    fn coefficient(
        &self,
        name: &str,
        start: f64,
        weights: &[f64],
        point: &[f64],
        covariance: &Symmetric,
    ) -> Coefficient {
        let estimate = weights.iter().zip(point).fold(start, |sum, (weight, value)| sum + weight * value);
        let variance = covariance.product(weights, weights) * self.dispersion;
        let standard_error = variance.max(f64::MIN_POSITIVE).sqrt();
        let statistic = estimate / standard_error;
        let (p_value, bound) = match self.freedom {
            Some(freedom) => (student_beyond(statistic, freedom), student_bound(BEYOND, freedom)),
            None => (normal_beyond(statistic), NORMAL_BOUND),
        };
        let (low, high) = (estimate - bound * standard_error, estimate + bound * standard_error);
        Coefficient { name: name.to_owned(), estimate, standard_error, statistic, p_value, low, high }
    }
}

/// Whether these are finite coefficients of these terms, or none yet.
pub(super) fn are_sound(coefficients: &[Coefficient], terms: usize) -> bool {
    let is_finite = |one: &Coefficient| {
        [one.estimate, one.standard_error, one.statistic, one.p_value, one.low, one.high].iter().all(|v| v.is_finite())
    };
    (coefficients.is_empty() || coefficients.len() == terms) && coefficients.iter().all(is_finite)
}
