//! Problems of a task specification: all of them at once, each with what would be right.

use serde::{Deserialize, Serialize};

/// Constraints that the deployment imposes on every task.
#[derive(Clone, Copy, Debug)]
pub struct Deployment {
    /// Maximum time between two polls of a participant.
    pub poll_interval_ms: u64,
}

/// One problem of a task specification.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{field}: {problem}")]
pub struct SpecError {
    /// Dotted path in the task file.
    pub field: String,
    /// What is wrong and what would be right.
    pub problem: String,
}

/// The problems found so far.
#[derive(Default)]
pub(crate) struct Checks(Vec<SpecError>);

impl Checks {
    pub(crate) fn found(self) -> Result<(), Vec<SpecError>> {
        if self.0.is_empty() { Ok(()) } else { Err(self.0) }
    }

    pub(crate) fn require(&mut self, holds: bool, field: &str, problem: &str) {
        self.require_with(holds, field, || problem.to_owned());
    }

    pub(crate) fn require_with(&mut self, holds: bool, field: &str, problem: impl FnOnce() -> String) {
        if !holds {
            self.0.push(SpecError { field: field.to_owned(), problem: problem() });
        }
    }
}
