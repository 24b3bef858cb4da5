//! The errors of the facade.

use client_sdk::journal::JournalError;
use client_sdk::runner::{Kind, Overdue, UpdateError};
use client_sdk::{BuildError, NotKept, ParticipantError, WithdrawalError};

/// An error, with its cause and remedy in words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[cfg_attr(feature = "uniffi", derive(uniffi::Error), uniffi(flat_error))]
pub enum TributaryError {
    /// An invalid argument: NULL, not UTF-8, an unknown metric. The call had no effect.
    #[error("{0}")]
    Argument(String),
    /// A setting is missing or cannot be used.
    #[error("{0}")]
    Configuration(String),
    /// The participant is not enrolled, was revoked, or has expired.
    #[error("{0}")]
    Enrollment(String),
    /// The journal cannot be used: the text states the remedy.
    #[error("{0}")]
    Journal(String),
    /// The update does not fit the model, or a checkpoint is too large. It was not sent, and the job still takes an
    /// answer.
    #[error("{0}")]
    Update(String),
    /// The round has stopped waiting for the job.
    #[error("{0}")]
    Overdue(String),
    /// The job was answered before; each takes one answer.
    #[error("this job was answered before; each takes one answer")]
    Answered,
    /// The participant was closed.
    #[error("this participant was closed")]
    Closed,
    /// The participant belongs to the process that made it.
    #[error(
        "this participant belongs to the process that made it, and a forked child has none of its threads: make it after the fork"
    )]
    OtherProcess,
    /// A call that waits was made from within a callback.
    #[error(
        "this call waits for what makes the callback, the participant's thread or the journal: make it from another thread"
    )]
    InCallback,
    /// Any other error, such as a final rejection by the coordinator.
    #[error("{0}")]
    Failed(String),
    /// A defect of the library, which was contained.
    #[error("the library has a defect: {0}")]
    Defect(String),
}

/// Refuses a call in a process that was forked from the one that has the participant.
pub(crate) fn of_this_process(process: u32) -> Result<(), TributaryError> {
    if std::process::id() == process { Ok(()) } else { Err(TributaryError::OtherProcess) }
}

impl TributaryError {
    fn of_kind(kind: Kind, text: String) -> Self {
        match kind {
            Kind::Settings => Self::Configuration(text),
            Kind::Enrollment => Self::Enrollment(text),
            Kind::Journal => Self::Journal(text),
            Kind::Defect => Self::Defect(text),
            Kind::Other => Self::Failed(text),
        }
    }
}

impl From<&BuildError> for TributaryError {
    fn from(error: &BuildError) -> Self {
        Self::of_kind(error.into(), error.to_string())
    }
}

impl From<&ParticipantError> for TributaryError {
    fn from(error: &ParticipantError) -> Self {
        Self::of_kind(error.into(), error.to_string())
    }
}

impl From<&WithdrawalError> for TributaryError {
    fn from(error: &WithdrawalError) -> Self {
        Self::of_kind(error.into(), error.to_string())
    }
}

impl From<Overdue> for TributaryError {
    fn from(overdue: Overdue) -> Self {
        Self::Overdue(overdue.to_string())
    }
}

impl From<UpdateError> for TributaryError {
    fn from(error: UpdateError) -> Self {
        Self::Update(error.to_string())
    }
}

impl From<JournalError> for TributaryError {
    fn from(error: JournalError) -> Self {
        Self::Journal(error.to_string())
    }
}

impl From<NotKept> for TributaryError {
    fn from(error: NotKept) -> Self {
        match error {
            NotKept::Over => Self::Overdue(error.to_string()),
            NotKept::Journal(error) => error.into(),
            too_large => Self::Update(too_large.to_string()),
        }
    }
}
