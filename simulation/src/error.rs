//! Why a simulation ends without a report.

/// Why a simulation ends without a report.
#[derive(Debug, thiserror::Error)]
pub enum SimulationError {
    /// The experiment makes no sense.
    #[error("{0}")]
    Invalid(String),
    /// The data cannot be used.
    #[error("the data: {0}")]
    Data(String),
    /// The coordinator does not take the task.
    #[error("the coordinator refuses: {0}")]
    Refused(String),
    /// The coordinator failed inside.
    #[error("the coordinator failed: {0}")]
    Coordinator(String),
    /// A participant ended in a way that no participant should.
    #[error("{name} ended: {error}")]
    Participant { name: String, error: String },
    /// No threads to be had.
    #[error("cannot start threads: {0}")]
    Threads(String),
}
