//! What can be wrong with an analysis, its data, its state or a sum.

/// Why an analysis cannot be, or cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AnalyticsError {
    /// The specification asks for what cannot be; refused when a task is created.
    #[error("{field}: {problem}")]
    Spec {
        /// Dotted path below the analysis.
        field: String,
        /// What is wrong and what would be right.
        problem: String,
    },
    /// Words that describe no analysis.
    #[error("{0}")]
    Words(String),
    /// A value that is no number: a local matter of the participant.
    #[error("row {row}, column {column} is NaN or infinite; leave such rows out or give them a value")]
    NotFinite {
        /// From 0.
        row: usize,
        /// From 0; the target is the column behind the last.
        column: usize,
    },
    /// Rows of another width than the analysis has, or targets that do not fit the rows.
    #[error("{what}: got {got} where {expected} are needed")]
    Shape {
        /// What was counted.
        what: &'static str,
        /// How many there should be.
        expected: usize,
        /// How many there are.
        got: usize,
    },
    /// A target that is none of the classes.
    #[error("the target of row {row} is {value}, which is none of the classes 0 to {last}")]
    Class {
        /// From 0.
        row: usize,
        /// As it came, for people.
        value: String,
        /// The largest class.
        last: u32,
    },
    /// Nothing to contribute.
    #[error("the table has no rows")]
    NoRows,
    /// Bytes that are no state of this analysis.
    #[error("these bytes are no state of this analysis: {0}")]
    State(String),
    /// A sum that honest participants cannot have produced.
    #[error("these participants cannot have made this sum: {0}")]
    Sum(String),
    /// There is no further round.
    #[error("the analysis is complete after {0} rounds")]
    Done(u32),
}

impl AnalyticsError {
    pub(super) fn spec(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Spec { field: field.into(), problem: problem.into() }
    }

    pub(super) fn state(problem: impl Into<String>) -> Self {
        Self::State(problem.into())
    }
}

/// `Ok` where `holds`, else what is wrong with `field`.
pub(super) fn require(holds: bool, field: &str, problem: impl FnOnce() -> String) -> Result<(), AnalyticsError> {
    if holds { Ok(()) } else { Err(AnalyticsError::spec(field, problem())) }
}

/// `Ok` where `holds`, else what is wrong with a state.
pub(super) fn sound(holds: bool, problem: &str) -> Result<(), AnalyticsError> {
    if holds { Ok(()) } else { Err(AnalyticsError::state(problem)) }
}
