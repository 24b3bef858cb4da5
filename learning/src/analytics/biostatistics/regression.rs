//! Generalized linear models: linear, logistic and Poisson regression by iteratively reweighted least squares.
//!
//! Each round, participants sum the gradient and the second derivatives of the log-likelihood over their rows, at coefficients that the
//! last version states (McCullagh and Nelder 1989, §2.5). The coordinator solves for the next ones. Sums are rounded to a grid once per
//! participant, so the result is that of one table with all rows up to about nine digits.

use serde::{Deserialize, Serialize};

use super::coefficients::{Coefficient, Units, are_sound};
use super::newton::{Derivatives, Progress, Search, Symmetric, add_products, triangle};
use super::variables::{VariableSpec, Variables, check_binary};
use crate::analytics::error::{AnalyticsError, require, sound};
use crate::analytics::private::Part;
use crate::analytics::procedure::{Advanced, Procedure, Terms};
use crate::analytics::sum_codec::Field;
use crate::analytics::table::{Range, Table, check_rows, power, round};
use crate::metrics::MetricValue;

/// Maximum number of iterations.
pub const MAX_REGRESSION_ITERATIONS: u32 = 100;
/// Largest count that a row may have.
pub const MAX_COUNT: u32 = 1_000_000;

/// Logits beyond this are those of separated data.
const MAX_LOGIT: f64 = 30.0;
/// Largest magnitude of the logarithm of a rate, and of a working response.
const MAX_LOG_RATE: f64 = 64.0;
/// Largest scaled residual of a number.
const MAX_RESIDUAL: f64 = 4.0;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegressionSpec {
    /// Cap on the rows a participant contributes; of more, evenly spaced ones are used.
    pub max_rows: u32,
    /// In the order of the table's columns: numbers, categories and, for counts, an exposure.
    pub columns: Vec<VariableSpec>,
    /// What is explained: the label of each row.
    pub target: OutcomeSpec,
    /// Number of times the coefficients move. Default 2 if the target is a number, else 10. 1 to 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iterations: Option<u32>,
}

/// The outcome, which selects the model.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum OutcomeSpec {
    /// A number: linear regression.
    Real {
        /// Smaller targets are clipped to it.
        low: f64,
        /// Larger targets are clipped to it.
        high: f64,
    },
    /// 0 (no) or 1 (yes): logistic regression.
    Binary,
    /// A count: Poisson regression with the logarithm as link.
    Count {
        /// Larger targets are clipped to it.
        high: u32,
    },
}

/// The coefficients so far; after the last round, the result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegressionState {
    /// Number of completed rounds.
    pub round: u32,
    /// Number of rows in the last round.
    pub rows: u64,
    /// Intercept first, then the terms of each column.
    pub coefficients: Vec<Coefficient>,
    /// Of the coefficients; of a linear regression with the variance of largest likelihood.
    pub log_likelihood: Option<f64>,
    /// Variance of the residuals in a linear regression.
    pub residual_variance: Option<f64>,
    /// Share of the variance that a linear regression explains.
    pub r_squared: Option<f64>,
    /// Whether a further step would change nothing.
    pub converged: bool,
    /// Why there is no result, or what to doubt about it.
    pub problem: Option<String>,
    search: Search,
}

/// Sums of a round before they are rounded, and as they come back.
struct Sums<'a> {
    information: &'a [f64],
    gradient: &'a [f64],
    likelihood: f64,
    /// Sum and sum of squares of scaled numbers.
    moments: [f64; 2],
}

/// The procedure of a validated specification.
#[derive(Clone, Debug)]
pub(in crate::analytics) struct Regression {
    spec: RegressionSpec,
    variables: Variables,
    /// Range of the outcome, if it is a number.
    range: Option<Range>,
    /// Grid resolution, in bits, of information, gradient, likelihood and moments.
    grids: [u32; 4],
}

/// One row's part of the sums.
struct RowParts {
    weight: f64,
    residual: f64,
    likelihood: f64,
    moment: f64,
}

impl RegressionSpec {
    fn moves(&self) -> u32 {
        self.iterations.unwrap_or(match self.target {
            OutcomeSpec::Real { .. } => 2,
            OutcomeSpec::Binary | OutcomeSpec::Count { .. } => 10,
        })
    }

    /// Largest magnitude, in one row, of what information, gradient, likelihood and moments sum.
    fn row_bounds(&self) -> [f64; 4] {
        match self.target {
            OutcomeSpec::Real { .. } => [1.0, MAX_RESIDUAL, MAX_RESIDUAL * MAX_RESIDUAL, 1.0],
            OutcomeSpec::Binary => [1.0, 1.0, MAX_LOGIT + 1.0, 0.0],
            OutcomeSpec::Count { high } => {
                let (most, rate) = (f64::from(high), largest_rate(high));
                [rate, rate * MAX_LOG_RATE, most * MAX_LOG_RATE + rate + libm::lgamma(most + 1.0), 0.0]
            }
        }
    }

    /// Rejects rows that this regression cannot use.
    pub(in crate::analytics) fn check_table(&self, table: &Table) -> Result<(), AnalyticsError> {
        Variables::new(&self.columns)?.check_rows(table)?;
        match self.target {
            OutcomeSpec::Real { .. } => table.required_targets().map(drop),
            OutcomeSpec::Binary => check_binary(table),
            OutcomeSpec::Count { .. } => table.required_targets()?.iter().enumerate().try_for_each(|(row, &value)| {
                let (column, expected) = (table.width(), "a count, at least 0".to_owned());
                let is_count = value >= 0.0;
                if is_count {
                    Ok(())
                } else {
                    Err(AnalyticsError::Value { row, column, value: value.to_string(), expected })
                }
            }),
        }
    }
}

/// Fitted counts beyond this are those of a step that went too far.
fn largest_rate(high: u32) -> f64 {
    16.0 * (f64::from(high) + 1.0)
}

/// The finest grid, of at most 40 bits, on which a cohort's values of up to `most` per row sum below 2^61.
pub(super) fn fine_grid(most: f64, max_rows: u32, terms: Terms) -> Result<u32, AnalyticsError> {
    let total = most * f64::from(max_rows) * f64::from(terms.max_cohort) + 1.0;
    let room = (2.0_f64.powi(61) / total).log2().floor();
    require(room >= 16.0, "max_rows", || {
        format!("is {max_rows}, which leaves the sums of a cohort of {} too coarse; lower it", terms.max_cohort)
    })?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "16 to 61")]
    Ok(room.min(40.0) as u32)
}

/// The bound of a field on a grid, which no rounding exceeds.
pub(super) fn bound(most: f64, max_rows: u32, grid: u32) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below 2^61")]
    let bound = (most * f64::from(max_rows) * power(grid)).ceil() as u64;
    bound
}

/// Sums on a grid, within a bound.
pub(super) fn put(sums: &[f64], grid: u32, bound: u64, out: &mut [i64]) {
    let most = i64::try_from(bound).unwrap_or(i64::MAX);
    for (out, &sum) in out.iter_mut().zip(sums) {
        *out = round(sum * power(grid)).clamp(-most, most);
    }
}

/// Sums from a grid.
pub(super) fn take(sums: &[i64], grid: u32) -> Vec<f64> {
    sums.iter().map(|&sum| sum as f64 / power(grid)).collect()
}

impl Regression {
    pub(in crate::analytics) fn new(spec: RegressionSpec, terms: Terms) -> Result<Self, AnalyticsError> {
        check_rows(spec.max_rows)?;
        let variables = Variables::new(&spec.columns)?;
        let (allowed, range): (&[&str], _) = match spec.target {
            OutcomeSpec::Real { low, high } => {
                (&["real", "category"], Some(Range::new("target", "target", low, high)?))
            }
            OutcomeSpec::Binary => (&["real", "category"], None),
            OutcomeSpec::Count { high } => {
                require((1..=MAX_COUNT).contains(&high), "target.high", || {
                    format!("is {high}; it must be 1 to {MAX_COUNT}")
                })?;
                (&["real", "category", "exposure"], None)
            }
        };
        variables.allow(allowed, "this regression")?;
        require((1..=MAX_REGRESSION_ITERATIONS).contains(&spec.moves()), "iterations", || {
            format!("is {}; it must be 1 to {MAX_REGRESSION_ITERATIONS}", spec.moves())
        })?;
        let mut grids = [0; 4];
        for (grid, most) in grids.iter_mut().zip(spec.row_bounds()) {
            *grid = fine_grid(most, spec.max_rows, terms)?;
        }
        Ok(Self { spec, variables, range, grids })
    }

    /// Number of coefficients: the intercept, and one for each term.
    fn size(&self) -> usize {
        1 + self.variables.terms.len()
    }

    /// Lengths of information, gradient, likelihood and moments.
    fn lengths(&self) -> [usize; 4] {
        [triangle(self.size()), self.size(), 1, if self.range.is_some() { 2 } else { 0 }]
    }

    fn bounds(&self) -> [u64; 4] {
        let mut bounds = [0; 4];
        for ((bound_of, most), grid) in bounds.iter_mut().zip(self.spec.row_bounds()).zip(self.grids) {
            *bound_of = bound(most, self.spec.max_rows, grid);
        }
        bounds
    }

    /// Whether the sums of this round are those of a starting step from the counts themselves.
    fn starts(&self, state: &RegressionState) -> bool {
        state.round == 0 && matches!(self.spec.target, OutcomeSpec::Count { .. })
    }

    fn parts(&self, target: f64, predictor: f64, offset: f64, starts: bool) -> RowParts {
        match self.spec.target {
            OutcomeSpec::Real { .. } => {
                let value = self.range.map_or(0.0, |range| 2.0 * range.unit(target) - 1.0);
                let residual = (value - predictor).clamp(-MAX_RESIDUAL, MAX_RESIDUAL);
                RowParts { weight: 1.0, residual, likelihood: -residual * residual / 2.0, moment: value }
            }
            OutcomeSpec::Binary => {
                let logit = predictor.clamp(-MAX_LOGIT, MAX_LOGIT);
                let mean = 1.0 / (1.0 + libm::exp(-logit));
                let signed = if target == 1.0 { logit } else { -logit };
                let likelihood = signed.min(0.0) - libm::log1p(libm::exp(-signed.abs()));
                RowParts { weight: mean * (1.0 - mean), residual: target - mean, likelihood, moment: 0.0 }
            }
            OutcomeSpec::Count { high } => {
                let count = target.clamp(0.0, f64::from(high));
                if starts {
                    // The fitted counts are the counts themselves, kept above 0 (McCullagh and Nelder 1989, §2.5).
                    let mean = count + 0.1;
                    let response = libm::log(mean) - offset + (count - mean) / mean;
                    let response = response.clamp(-MAX_LOG_RATE, MAX_LOG_RATE);
                    return RowParts { weight: mean, residual: mean * response, likelihood: 0.0, moment: 0.0 };
                }
                let log_rate = (predictor + offset).clamp(-MAX_LOG_RATE, libm::log(largest_rate(high)));
                let mean = libm::exp(log_rate).min(largest_rate(high));
                let likelihood = count * log_rate - mean - libm::lgamma(count + 1.0);
                RowParts { weight: mean, residual: count - mean, likelihood, moment: 0.0 }
            }
        }
    }

    /// Fills in what the accepted point says.
    fn report(&self, next: &mut RegressionState, point: &[f64], covariance: &Symmetric, sums: &Sums<'_>) {
        let (rows, size) = (next.rows as f64, self.size() as f64);
        let mut units = Units {
            terms: &self.variables.terms,
            intercept: true,
            outcome: (0.0, 1.0),
            dispersion: 1.0,
            freedom: None,
        };
        next.log_likelihood = Some(sums.likelihood);
        if let Some(range) = self.range {
            let half = range.width() / 2.0;
            let squares = (-2.0 * sums.likelihood).max(0.0);
            let freedom = rows - size;
            let [sum, square] = sums.moments;
            let total = square - sum * sum / rows;
            units.outcome = (f64::midpoint(range.low, range.high), half);
            units.dispersion = squares / freedom;
            units.freedom = Some(freedom);
            next.residual_variance = Some(squares / freedom * half * half);
            next.r_squared = (total > 0.0).then(|| 1.0 - squares / total);
            let variance = (squares / rows * half * half).max(f64::MIN_POSITIVE);
            next.log_likelihood = Some(-rows / 2.0 * (libm::log(std::f64::consts::TAU * variance) + 1.0));
        }
        next.coefficients = units.coefficients(point, covariance);
    }
}

/// Why a term has no coefficient of its own.
pub(super) fn depends(name: &str) -> String {
    format!("`{name}` is the same in all rows, or a combination of the terms before it; leave it out")
}

impl Procedure for Regression {
    type State = RegressionState;

    fn fields(&self) -> Vec<Field> {
        let mut fields = vec![Field { len: 1, bound: u64::from(self.spec.max_rows) }];
        fields.extend(self.lengths().into_iter().zip(self.bounds()).map(|(len, bound)| Field { len, bound }));
        fields
    }

    fn rounds(&self) -> u32 {
        self.spec.moves() + 1
    }

    fn done(&self, state: &RegressionState) -> u32 {
        state.round
    }

    fn initial(&self) -> RegressionState {
        RegressionState {
            round: 0,
            rows: 0,
            coefficients: Vec::new(),
            log_likelihood: None,
            residual_variance: None,
            r_squared: None,
            converged: false,
            problem: None,
            search: Search::new(self.size()),
        }
    }

    fn check(&self, state: &RegressionState) -> Result<(), AnalyticsError> {
        let measured = [state.log_likelihood, state.residual_variance, state.r_squared];
        sound(state.round <= self.rounds(), "it is past the last round")?;
        sound(measured.iter().flatten().all(|value| value.is_finite()), "a figure is not finite")?;
        sound(are_sound(&state.coefficients, self.size()), "its coefficients are wrong")?;
        sound(state.search.is_sound(self.size()), "its search has other terms")
    }

    fn private_parts(&self, _state: &RegressionState) -> Option<Vec<Part>> {
        None
    }

    fn contribution(&self, state: &RegressionState, table: &Table, out: &mut [i64]) -> Result<(), AnalyticsError> {
        self.spec.check_table(table)?;
        let (size, starts) = (self.size(), self.starts(state));
        let mut values = vec![1.0; size];
        let (mut information, mut gradient) = (vec![0.0; triangle(size)], vec![0.0; size]);
        let (mut likelihood, mut moments) = (0.0, [0.0; 2]);
        for index in table.counted(self.spec.max_rows) {
            let (row, target) = (table.row(index), table.targets()[index]);
            self.variables.values(row, &mut values[1..]);
            let predictor = values.iter().zip(&state.search.at).fold(0.0, |sum, (value, at)| sum + value * at);
            let parts = self.parts(target, predictor, self.variables.offset(row), starts);
            add_products(&values, parts.weight, &mut information);
            for (sum, value) in gradient.iter_mut().zip(&values) {
                *sum += parts.residual * value;
            }
            likelihood += parts.likelihood;
            moments[0] += parts.moment;
            moments[1] += parts.moment * parts.moment;
            out[0] += 1;
        }
        let mut rest = &mut out[1..];
        let sums: [&[f64]; 4] = [&information, &gradient, &[likelihood], &moments];
        for (index, (len, bound)) in self.lengths().into_iter().zip(self.bounds()).enumerate() {
            let (own, after) = rest.split_at_mut(len);
            put(sums[index], self.grids[index], bound, own);
            rest = after;
        }
        Ok(())
    }

    fn advance(
        &self,
        state: &RegressionState,
        sum: &[i64],
        _participants: u32,
    ) -> Result<Advanced<RegressionState>, AnalyticsError> {
        let mut next = RegressionState { round: state.round + 1, ..state.clone() };
        next.rows = u64::try_from(sum[0]).map_err(|_| AnalyticsError::Sum("a count is negative".to_owned()))?;
        let mut rest = &sum[1..];
        let mut parts = self.lengths().into_iter().zip(self.grids).map(|(len, grid)| {
            let (own, after) = rest.split_at(len);
            rest = after;
            take(own, grid)
        });
        let mut part = || parts.next().unwrap_or_default();
        let (information, gradient, likelihood, moments) = (part(), part(), part(), part());
        if next.rows <= self.size() as u64 {
            next.problem = Some(format!("{} rows are too few for {} coefficients", next.rows, self.size()));
            return Ok(Advanced { state: next, metrics: Vec::new() });
        }
        let sums = Sums {
            information: &information,
            gradient: &gradient,
            likelihood: likelihood[0],
            moments: [0, 1].map(|index| moments.get(index).copied().unwrap_or_default()),
        };
        let derivatives = Derivatives {
            log_likelihood: (!self.starts(state)).then_some(sums.likelihood),
            gradient: sums.gradient.to_vec(),
            information: Symmetric::of_triangle(self.size(), sums.information),
        };
        match next.search.advance(&derivatives) {
            Progress::Better { covariance, converged } => {
                if derivatives.log_likelihood.is_some() {
                    self.report(&mut next, &state.search.at, &covariance, &sums);
                }
                next.converged = converged;
                next.problem = (!converged && next.round == self.rounds()).then(|| {
                    "the coefficients still moved in the last round: more iterations may help, unless the outcome can be told apart \
                     exactly"
                        .to_owned()
                });
            }
            Progress::Worse => {}
            Progress::Singular(0) => next.problem = Some("the outcome can be told apart exactly".to_owned()),
            Progress::Singular(term) => next.problem = Some(depends(&self.variables.terms[term - 1].name)),
        }
        let per_row = |value: f64| MetricValue { value: value / next.rows as f64, count: next.rows };
        let metrics = next.log_likelihood.map(|value| ("log_likelihood_per_row".to_owned(), per_row(value)));
        let metrics = metrics.into_iter().collect();
        Ok(Advanced { state: next, metrics })
    }
}
