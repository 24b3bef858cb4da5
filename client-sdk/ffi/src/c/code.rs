//! The numbers of results and errors. A number keeps its meaning for ever.

use crate::error::TributaryError;

/// Result of a call. 0 to 2 are not errors. For others `tributary_last_error` has the reason in words, except for
/// TOO_SMALL and TIMEOUT, whose names suffice.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TributaryCode {
    /// Done.
    Ok = 0,
    /// The result is empty: the job, tensor, id or model does not exist yet; or the answer to the question is false.
    Nothing = 1,
    /// The participant has ended: its task is over, or the app stopped it.
    Ended = 2,
    /// An argument is NULL, not aligned, not UTF-8 or out of its range. The call had no effect.
    Argument = 16,
    /// A buffer is too small; the returned length states the size that it needs, with the final NUL if it is a text.
    TooSmall = 17,
    /// A setting is missing or cannot be used.
    Configuration = 18,
    /// The participant is not enrolled, was revoked, or has expired: it needs a token.
    Enrollment = 19,
    /// The journal cannot be used: the text states the remedy.
    Journal = 20,
    /// The update does not fit the model, or a checkpoint is too large. It was not sent, and the job still takes an
    /// answer.
    Update = 21,
    /// The round has stopped waiting for the job; get the next one.
    Overdue = 22,
    /// The job was answered before.
    Answered = 23,
    /// The handle is invalid: it was closed, answered, freed or made up.
    Closed = 24,
    /// The participant belongs to the process that made it: make it after the fork.
    OtherProcess = 25,
    /// The call waits, and was made from within a callback: make it from another thread.
    InCallback = 26,
    /// The time was up before the participant had ended.
    Timeout = 27,
    /// Any other error, such as a final rejection by the coordinator.
    Failed = 28,
    /// A defect of the library, which was contained. Please report it.
    Defect = 29,
}

impl From<&TributaryError> for TributaryCode {
    fn from(error: &TributaryError) -> Self {
        match error {
            TributaryError::Argument(_) => Self::Argument,
            TributaryError::Configuration(_) => Self::Configuration,
            TributaryError::Enrollment(_) => Self::Enrollment,
            TributaryError::Journal(_) => Self::Journal,
            TributaryError::Update(_) => Self::Update,
            TributaryError::Overdue(_) => Self::Overdue,
            TributaryError::Answered => Self::Answered,
            TributaryError::Closed => Self::Closed,
            TributaryError::OtherProcess => Self::OtherProcess,
            TributaryError::InCallback => Self::InCallback,
            TributaryError::Failed(_) => Self::Failed,
            TributaryError::Defect(_) => Self::Defect,
        }
    }
}
