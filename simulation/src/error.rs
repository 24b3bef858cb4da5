//! Errors of a simulation.

/// Errors of a simulation.
#[derive(Debug, thiserror::Error)]
pub enum SimulationError {
    /// The experiment is invalid.
    #[error("{0}")]
    Invalid(String),
    /// The data cannot be used.
    #[error("the data: {0}")]
    Data(String),
    /// The coordinator rejected the task.
    #[error("the coordinator refuses: {0}")]
    Refused(String),
    #[error("the coordinator failed: {0}")]
    Coordinator(String),
    /// A participant ended with an error.
    #[error("{name} ended: {error}")]
    Participant { name: String, error: String },
    /// Threads could not be started.
    #[error("cannot start threads: {0}")]
    Threads(String),
}
