//! Errors of an analysis, its data, its state and its sums.

/// Reasons an analysis cannot be set up or cannot continue.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AnalyticsError {
    /// The specification is invalid; rejected when a task is created.
    #[error("{field}: {problem}")]
    Spec {
        /// Dotted path below the analysis.
        field: String,
        /// The problem, with a valid alternative.
        problem: String,
    },
    /// The text does not describe an analysis.
    #[error("{0}")]
    Words(String),
    /// A value is NaN or infinite; concerns only the participant that holds it.
    #[error("row {row}, column {column} is NaN or infinite; leave such rows out or give them a value")]
    NotFinite {
        /// From 0.
        row: usize,
        /// From 0; the target is the column after the last.
        column: usize,
    },
    /// Rows have another width than the analysis, or targets do not match the rows.
    #[error("{what}: got {got} where {expected} are needed")]
    Shape { what: &'static str, expected: usize, got: usize },
    /// A target is not a class.
    #[error("the target of row {row} is {value}, which is none of the classes 0 to {last}")]
    Class {
        /// From 0.
        row: usize,
        /// The target as given, for the message.
        value: String,
        /// The largest class.
        last: u32,
    },
    /// A value is none of those that its column has; concerns only the participant that holds it.
    #[error("row {row}, column {column} is {value}; it must be {expected}")]
    Value {
        /// From 0.
        row: usize,
        /// From 0; the target is the column after the last.
        column: usize,
        /// The value as given, for the message.
        value: String,
        /// What the column has.
        expected: String,
    },
    /// The table is empty.
    #[error("the table has no rows")]
    NoRows,
    /// The bytes are not a state of this analysis.
    #[error("these bytes are no state of this analysis: {0}")]
    State(String),
    /// Honest participants cannot have produced this sum.
    #[error("these participants cannot have produced this sum: {0}")]
    Sum(String),
    /// The kind of analysis has no results with noise.
    #[error(
        "this kind of analysis needs exact sums; statistics, contingency, k_means, trees and evaluation are possible with a privacy \
         mechanism"
    )]
    NotPrivate,
    /// The analysis has completed all rounds.
    #[error("the analysis is complete after {0} rounds")]
    Done(u32),
}

impl AnalyticsError {
    /// The same error of a row that is so many rows further down.
    #[must_use]
    pub fn below(mut self, rows: usize) -> Self {
        if let Self::NotFinite { row, .. } | Self::Class { row, .. } | Self::Value { row, .. } = &mut self {
            *row += rows;
        }
        self
    }

    pub(super) fn spec(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Spec { field: field.into(), problem: problem.into() }
    }

    pub(super) fn state(problem: impl Into<String>) -> Self {
        Self::State(problem.into())
    }
}

/// `Ok` if `holds`, else an [`AnalyticsError::Spec`] about `field`.
pub(super) fn require(holds: bool, field: &str, problem: impl FnOnce() -> String) -> Result<(), AnalyticsError> {
    if holds { Ok(()) } else { Err(AnalyticsError::spec(field, problem())) }
}

/// `Ok` if `holds`, else an [`AnalyticsError::State`].
pub(super) fn sound(holds: bool, problem: &str) -> Result<(), AnalyticsError> {
    if holds { Ok(()) } else { Err(AnalyticsError::state(problem)) }
}

/// Summed counts, none of which is negative.
///
/// # Errors
/// [`AnalyticsError::Sum`].
pub(super) fn counts(sums: &[i64]) -> Result<Vec<u64>, AnalyticsError> {
    let counts = sums.iter().map(|&count| u64::try_from(count)).collect::<Result<_, _>>();
    counts.map_err(|_| AnalyticsError::Sum("a count is negative".to_owned()))
}
