//! Cox's regression of survival on a grid of time, with Efron's or Breslow's treatment of ties.
//!
//! The partial likelihood needs sums over everybody at risk at each event. Those are sums over steps of time, so participants send, for
//! each step, the sums of relative risks and their products with the covariates, and the coordinator accumulates them (Cox 1972; Efron
//! 1977). With times that are whole steps the result is that of one table with all rows, up to about nine digits.

use serde::{Deserialize, Serialize};

use super::coefficients::{Coefficient, Units, are_sound};
use super::newton::{Derivatives, Progress, Search, Symmetric, add_products, triangle};
use super::regression::{bound, depends, fine_grid, put, take};
use super::variables::{Time, VariableSpec, Variables, check_binary};
use crate::analytics::error::{AnalyticsError, counts, require, sound};
use crate::analytics::private::Part;
use crate::analytics::procedure::{Advanced, Procedure, Terms};
use crate::analytics::sum_codec::Field;
use crate::analytics::table::{Table, check_rows};
use crate::metrics::MetricValue;

/// Maximum number of iterations.
pub const MAX_COX_ITERATIONS: u32 = 100;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CoxSpec {
    /// Cap on the rows a participant contributes; of more, evenly spaced ones are used.
    pub max_rows: u32,
    /// In the order of the table's columns: one time, numbers and categories. The target is 1 for an event, else 0.
    pub columns: Vec<VariableSpec>,
    #[serde(default)]
    pub ties: Ties,
    /// Number of times the coefficients move. Default 8. 1 to 100.
    #[serde(default = "eight")]
    pub iterations: u32,
}

fn eight() -> u32 {
    8
}

/// The treatment of events at the same step of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ties {
    /// Each event lowers the risk of the others at its time on average (Efron 1977).
    #[default]
    Efron,
    /// All events at a time see the same people at risk (Breslow 1974); half of the words.
    Breslow,
}

/// The coefficients so far; after the last round, the result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CoxState {
    /// Number of completed rounds.
    pub round: u32,
    /// Number of rows in the last round.
    pub rows: u64,
    /// Number of rows with an event in the last round.
    pub events: u64,
    /// Logarithms of hazard ratios, for the terms of each column.
    pub coefficients: Vec<Coefficient>,
    /// Partial log-likelihood of the coefficients.
    pub log_likelihood: Option<f64>,
    /// The same with all coefficients 0.
    pub null_log_likelihood: Option<f64>,
    /// Whether a further step would change nothing.
    pub converged: bool,
    /// Why there is no result, or what to doubt about it.
    pub problem: Option<String>,
    search: Search,
}

/// The procedure of a validated specification.
#[derive(Clone, Debug)]
pub(in crate::analytics) struct Cox {
    spec: CoxSpec,
    variables: Variables,
    time: Time,
    grid: u32,
}

impl CoxSpec {
    /// Rejects rows without a time or an event that is 0 or 1.
    pub(in crate::analytics) fn check_table(&self, table: &Table) -> Result<(), AnalyticsError> {
        Variables::new(&self.columns)?.check_rows(table)?;
        check_binary(table)
    }
}

/// Sums over rows: of relative risks, of their products with each term, and with each pair of terms.
#[derive(Clone)]
struct Risk(Vec<f64>);

impl Risk {
    fn add(&mut self, other: &[f64], factor: f64) {
        for (sum, value) in self.0.iter_mut().zip(other) {
            *sum += factor * value;
        }
    }
}

impl Cox {
    pub(in crate::analytics) fn new(spec: CoxSpec, terms: Terms) -> Result<Self, AnalyticsError> {
        check_rows(spec.max_rows)?;
        let variables = Variables::new(&spec.columns)?;
        variables.allow(&["time", "real", "category"], "Cox's regression")?;
        let time = variables.required_time()?;
        require(!variables.terms.is_empty(), "columns", || {
            "must have a number or a category beside the time".to_owned()
        })?;
        require((1..=MAX_COX_ITERATIONS).contains(&spec.iterations), "iterations", || {
            format!("is {}; it must be 1 to {MAX_COX_ITERATIONS}", spec.iterations)
        })?;
        let grid = fine_grid(1.0, spec.max_rows, terms)?;
        Ok(Self { spec, variables, time, grid })
    }

    fn terms(&self) -> usize {
        self.variables.terms.len()
    }

    fn steps(&self) -> usize {
        self.time.steps + 1
    }

    /// Length of the sums of one step.
    fn part(&self) -> usize {
        1 + self.terms() + triangle(self.terms())
    }

    /// Sums for those with an event, after those for everybody.
    fn parts(&self) -> usize {
        let kinds = match self.spec.ties {
            Ties::Efron => 2,
            Ties::Breslow => 1,
        };
        kinds * self.steps() * self.part()
    }

    /// Relative risks are divided by the largest possible one, whose logarithm this is.
    fn largest(&self, state: &CoxState) -> f64 {
        state.search.at.iter().fold(0.0, |sum, value| sum + value.abs())
    }

    /// Log-likelihood, gradient and information, given the counts of events and the sums.
    fn derivatives(&self, state: &CoxState, events: &[u64], covariates: &[f64], sums: &[f64]) -> Derivatives {
        let (terms, part, largest) = (self.terms(), self.part(), self.largest(state));
        let (everybody, with_event) = sums.split_at(self.steps() * part);
        let mut log_likelihood = covariates.iter().zip(&state.search.at).fold(0.0, |sum, (x, at)| sum + x * at);
        let (mut gradient, mut information) = (covariates.to_vec(), vec![0.0; triangle(terms)]);
        let mut at_risk = Risk(vec![0.0; part]);
        for step in (0..self.steps()).rev() {
            at_risk.add(&everybody[step * part..][..part], 1.0);
            let count = events[step];
            for event in 0..count {
                let mut risk = at_risk.clone();
                if self.spec.ties == Ties::Efron {
                    risk.add(&with_event[step * part..][..part], -(event as f64) / count as f64);
                }
                // Positive: somebody with an event is at risk. A sum of rounded numbers may still be 0.
                let total = risk.0[0].max(f64::MIN_POSITIVE);
                let means: Vec<f64> = risk.0[1..=terms].iter().map(|sum| sum / total).collect();
                log_likelihood -= libm::log(total) + largest;
                for (sum, mean) in gradient.iter_mut().zip(&means) {
                    *sum -= mean;
                }
                for (sum, product) in information.iter_mut().zip(&risk.0[1 + terms..]) {
                    *sum += product / total;
                }
                add_products(&means, -1.0, &mut information);
            }
        }
        Derivatives {
            log_likelihood: Some(log_likelihood),
            gradient,
            information: Symmetric::of_triangle(terms, &information),
        }
    }
}

impl Procedure for Cox {
    type State = CoxState;

    /// Events at each step, rows, covariates of rows with an event, and sums of risks.
    fn fields(&self) -> Vec<Field> {
        let rows = u64::from(self.spec.max_rows);
        let sums = bound(1.0, self.spec.max_rows, self.grid);
        vec![Field { len: self.steps() + 1, bound: rows }, Field { len: self.terms() + self.parts(), bound: sums }]
    }

    fn rounds(&self) -> u32 {
        self.spec.iterations + 1
    }

    fn done(&self, state: &CoxState) -> u32 {
        state.round
    }

    fn initial(&self) -> CoxState {
        CoxState {
            round: 0,
            rows: 0,
            events: 0,
            coefficients: Vec::new(),
            log_likelihood: None,
            null_log_likelihood: None,
            converged: false,
            problem: None,
            search: Search::new(self.terms()),
        }
    }

    fn check(&self, state: &CoxState) -> Result<(), AnalyticsError> {
        let measured = [state.log_likelihood, state.null_log_likelihood];
        sound(state.round <= self.rounds(), "it is past the last round")?;
        sound(measured.iter().flatten().all(|value| value.is_finite()), "a figure is not finite")?;
        sound(are_sound(&state.coefficients, self.terms()), "its coefficients are wrong")?;
        sound(state.search.is_sound(self.terms()), "its search has other terms")
    }

    fn private_parts(&self, _state: &CoxState) -> Option<Vec<Part>> {
        None
    }

    fn contribution(&self, state: &CoxState, table: &Table, out: &mut [i64]) -> Result<(), AnalyticsError> {
        self.spec.check_table(table)?;
        let (terms, part, largest) = (self.terms(), self.part(), self.largest(state));
        let (counts, sums) = out.split_at_mut(self.steps() + 1);
        let mut covariates = vec![0.0; terms];
        let mut parts = vec![0.0; self.parts()];
        let mut values = vec![0.0; terms];
        for index in table.counted(self.spec.max_rows) {
            let row = table.row(index);
            self.variables.values(row, &mut values);
            let (step, is_within) = self.time.index(row);
            let is_event = table.targets()[index] == 1.0 && is_within;
            let predictor = values.iter().zip(&state.search.at).fold(0.0, |sum, (value, at)| sum + value * at);
            let risk = libm::exp(predictor - largest).min(1.0);
            counts[self.steps()] += 1;
            let mut add = |step: usize| {
                let own = &mut parts[step * part..][..part];
                own[0] += risk;
                for (sum, value) in own[1..].iter_mut().zip(&values) {
                    *sum += risk * value;
                }
                add_products(&values, risk, &mut own[1 + terms..]);
            };
            add(step);
            if is_event {
                counts[step] += 1;
                for (sum, value) in covariates.iter_mut().zip(&values) {
                    *sum += value;
                }
                if self.spec.ties == Ties::Efron {
                    add(self.steps() + step);
                }
            }
        }
        let most = bound(1.0, self.spec.max_rows, self.grid);
        let (first, rest) = sums.split_at_mut(terms);
        put(&covariates, self.grid, most, first);
        put(&parts, self.grid, most, rest);
        Ok(())
    }

    fn advance(&self, state: &CoxState, sum: &[i64], _participants: u32) -> Result<Advanced<CoxState>, AnalyticsError> {
        let mut next = CoxState { round: state.round + 1, ..state.clone() };
        let (events, sums) = sum.split_at(self.steps() + 1);
        let mut events = counts(events)?;
        next.rows = events.pop().unwrap_or_default();
        next.events = events.iter().sum();
        if next.events > next.rows {
            return Err(AnalyticsError::Sum("there are more events than rows".to_owned()));
        }
        if next.events <= self.terms() as u64 {
            next.problem = Some(format!("{} events are too few for {} coefficients", next.events, self.terms()));
            return Ok(Advanced { state: next, metrics: Vec::new() });
        }
        let sums = take(sums, self.grid);
        let (covariates, sums) = sums.split_at(self.terms());
        let derivatives = self.derivatives(state, &events, covariates, sums);
        let value = derivatives.log_likelihood.filter(|value| value.is_finite());
        if state.round == 0 {
            next.null_log_likelihood = value;
        }
        match next.search.advance(&derivatives) {
            Progress::Better { covariance, converged } => {
                let units = Units {
                    terms: &self.variables.terms,
                    intercept: false,
                    outcome: (0.0, 1.0),
                    dispersion: 1.0,
                    freedom: None,
                };
                next.coefficients = units.coefficients(&state.search.at, &covariance);
                next.log_likelihood = value;
                next.converged = converged;
                next.problem = (!converged && next.round == self.rounds()).then(|| {
                    "the coefficients still moved in the last round: more iterations may help, unless a term tells exactly who has \
                     an event"
                        .to_owned()
                });
            }
            Progress::Worse => {}
            Progress::Singular(term) => next.problem = Some(depends(&self.variables.terms[term].name)),
        }
        let per_event = |value: f64| MetricValue { value: value / next.events as f64, count: next.events };
        let metrics = next.log_likelihood.map(|value| ("log_likelihood_per_event".to_owned(), per_event(value)));
        let metrics = metrics.into_iter().collect();
        Ok(Advanced { state: next, metrics })
    }
}
