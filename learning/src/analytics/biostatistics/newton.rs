//! Newton's method on a summed log-likelihood: one round, one step.

use serde::{Deserialize, Serialize};

/// A point counts as the maximum if a quadratic model promises less than this from a further step.
const CONVERGED: f64 = 1e-12;
/// A pivot below this share of its diagonal element is 0: the term is a combination of others.
const SINGULAR: f64 = 1e-11;

/// A symmetric matrix of `size` rows, complete.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Symmetric {
    size: usize,
    values: Vec<f64>,
}

/// Number of elements of a lower triangle with `size` rows.
pub(super) fn triangle(size: usize) -> usize {
    size * (size + 1) / 2
}

/// Adds `factor` times the products of all pairs of values to a lower triangle, row by row.
pub(super) fn add_products(values: &[f64], factor: f64, out: &mut [f64]) {
    let mut rest = out;
    for (row, &value) in values.iter().enumerate() {
        let (own, after) = rest.split_at_mut(row + 1);
        let scaled = factor * value;
        for (sum, &other) in own.iter_mut().zip(values) {
            *sum += scaled * other;
        }
        rest = after;
    }
}

impl Symmetric {
    /// The matrix with this lower triangle.
    pub(super) fn of_triangle(size: usize, triangle: &[f64]) -> Self {
        let mut values = vec![0.0; size * size];
        let mut elements = triangle.iter();
        for row in 0..size {
            for (column, &value) in (0..=row).zip(&mut elements) {
                values[row * size + column] = value;
                values[column * size + row] = value;
            }
        }
        Self { size, values }
    }

    pub(super) fn at(&self, row: usize, column: usize) -> f64 {
        self.values[row * self.size + column]
    }

    /// The Cholesky factor, or the first row that depends on those before it.
    fn factor(&self) -> Result<Self, usize> {
        let size = self.size;
        let mut factor = Self { size, values: vec![0.0; size * size] };
        for row in 0..size {
            for column in 0..=row {
                let done = (0..column).fold(0.0, |sum, k| sum + factor.at(row, k) * factor.at(column, k));
                let left = self.at(row, column) - done;
                factor.values[row * size + column] = if row > column {
                    left / factor.at(column, column)
                } else if left > SINGULAR * self.at(row, row) {
                    left.sqrt()
                } else {
                    return Err(row);
                };
            }
        }
        Ok(factor)
    }

    /// Solves for one right-hand side, given the Cholesky factor.
    fn solve_factored(&self, right: &[f64]) -> Vec<f64> {
        let size = self.size;
        let mut x = right.to_vec();
        for row in 0..size {
            let done = (0..row).fold(0.0, |sum, k| sum + self.at(row, k) * x[k]);
            x[row] = (x[row] - done) / self.at(row, row);
        }
        for row in (0..size).rev() {
            let done = (row + 1..size).fold(0.0, |sum, k| sum + self.at(k, row) * x[k]);
            x[row] = (x[row] - done) / self.at(row, row);
        }
        x
    }

    /// The solution of a system with this positive definite matrix.
    ///
    /// # Errors
    /// The first row that is a combination of those before it.
    pub(super) fn solve(&self, right: &[f64]) -> Result<Vec<f64>, usize> {
        self.factor().map(|factor| factor.solve_factored(right))
    }

    /// The inverse of this positive definite matrix.
    ///
    /// # Errors
    /// As for [`Self::solve`].
    pub(super) fn inverse(&self) -> Result<Self, usize> {
        let (factor, size) = (self.factor()?, self.size);
        let mut values = Vec::with_capacity(size * size);
        for row in 0..size {
            let unit: Vec<f64> = (0..size).map(|column| f64::from(u8::from(row == column))).collect();
            values.extend(factor.solve_factored(&unit));
        }
        Ok(Self { size, values })
    }

    /// `left`ᵀ · self · `right`.
    pub(super) fn product(&self, left: &[f64], right: &[f64]) -> f64 {
        let rows = self.values.chunks_exact(self.size.max(1)).zip(left);
        rows.fold(0.0, |sum, (row, &factor)| sum + factor * row.iter().zip(right).fold(0.0, |dot, (a, b)| dot + a * b))
    }
}

/// The search for the coefficients with the largest log-likelihood.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Search {
    /// Scaled coefficients at which participants compute the next sums.
    pub(super) at: Vec<f64>,
    /// The best coefficients so far, and their log-likelihood.
    best: Option<(Vec<f64>, f64)>,
}

/// The sums at the point of a search.
pub(super) struct Derivatives {
    /// `None` if the sums are those of a starting step, whose log-likelihood compares to none.
    pub(super) log_likelihood: Option<f64>,
    pub(super) gradient: Vec<f64>,
    /// Minus the matrix of second derivatives.
    pub(super) information: Symmetric,
}

/// What a search knows of a point.
pub(super) enum Progress {
    /// The best point so far, with the inverse of the information.
    Better { covariance: Symmetric, converged: bool },
    /// Worse than the best: the next point is halfway to it.
    Worse,
    /// The term at this index is a combination of those before it.
    Singular(usize),
}

impl Search {
    /// A search that begins with all coefficients 0.
    pub(super) fn new(terms: usize) -> Self {
        Self { at: vec![0.0; terms], best: None }
    }

    pub(super) fn is_sound(&self, terms: usize) -> bool {
        let fits = |point: &Vec<f64>| point.len() == terms && point.iter().all(|value| value.is_finite());
        fits(&self.at) && self.best.as_ref().is_none_or(|(point, value)| fits(point) && value.is_finite())
    }

    /// Moves to the next point.
    pub(super) fn advance(&mut self, sums: &Derivatives) -> Progress {
        if let (Some(value), Some((point, best))) = (sums.log_likelihood, &self.best)
            && value < best - 1e-9 * (1.0 + best.abs())
        {
            self.at = self.at.iter().zip(point).map(|(&at, &best)| f64::midpoint(at, best)).collect();
            return Progress::Worse;
        }
        let covariance = match sums.information.inverse() {
            Ok(covariance) => covariance,
            Err(term) => return Progress::Singular(term),
        };
        // The coordinator reads this state again, and JSON has no number that is not finite.
        let finite = |value: f64| if value.is_finite() { value.clamp(-1e100, 1e100) } else { 0.0 };
        let step = sums.information.solve(&sums.gradient).unwrap_or_default();
        let promise = step.iter().zip(&sums.gradient).fold(0.0, |sum, (a, b)| sum + a * b);
        if let Some(value) = sums.log_likelihood {
            self.best = Some((self.at.clone(), finite(value)));
        }
        self.at = self.at.iter().zip(&step).map(|(at, step)| finite(at + step)).collect();
        Progress::Better { covariance, converged: sums.log_likelihood.is_some() && promise < CONVERGED }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inverse_and_solution_of_a_small_matrix() {
        let matrix = Symmetric::of_triangle(3, &[4.0, 2.0, 5.0, 0.0, 1.0, 3.0]);
        let inverse = matrix.inverse().unwrap();
        for row in 0..3 {
            for column in 0..3 {
                let product = (0..3).fold(0.0, |sum, k| sum + matrix.at(row, k) * inverse.at(k, column));
                let expected = f64::from(u8::from(row == column));
                assert!((product - expected).abs() < 1e-14, "{row} {column}: {product}");
            }
        }
        let x = matrix.solve(&[2.0, -1.0, 7.0]).unwrap();
        assert!((4.0 * x[0] + 2.0 * x[1] - 2.0).abs() < 1e-13);
        assert_eq!(matrix.product(&[1.0, 0.0, 0.0], &[0.0, 1.0, 0.0]), 2.0);
        let dependent = Symmetric::of_triangle(2, &[1.0, 2.0, 4.0]);
        assert_eq!(dependent.inverse(), Err(1));
        assert_eq!(Symmetric::of_triangle(1, &[0.0]).solve(&[1.0]), Err(0));
    }

    #[test]
    fn products_fill_the_lower_triangle() {
        let mut sums = vec![1.0; triangle(3)];
        add_products(&[1.0, 2.0, -3.0], 2.0, &mut sums);
        assert_eq!(sums, [3.0, 5.0, 9.0, -5.0, -11.0, 19.0]);
    }

    /// The logarithm of a density of Cauchy's form, from where Newton's step overshoots.
    #[test]
    fn worse_points_are_left_halfway() {
        let mut search = Search::new(1);
        let mut halved = 0;
        let mut converged = false;
        for _ in 0..60 {
            let x = search.at[0] - 3.0;
            // -sqrt(1 + x²): concave, and Newton's step from |x| > 1 goes too far.
            let root = (1.0 + x * x).sqrt();
            let sums = Derivatives {
                log_likelihood: Some(-root),
                gradient: vec![-x / root],
                information: Symmetric::of_triangle(1, &[1.0 / (root * root * root)]),
            };
            match search.advance(&sums) {
                Progress::Better { converged: now, .. } => converged = now,
                Progress::Worse => halved += 1,
                Progress::Singular(_) => panic!("the information is positive"),
            }
        }
        assert!(halved > 0 && converged && (search.at[0] - 3.0).abs() < 1e-6, "{halved} {search:?}");
    }
}
