//! The exceptions of the package.

use client_sdk::runner::End;
use client_sdk::{BuildError, ParticipantError};
use pyo3::exceptions::{PyException, PyValueError};
use pyo3::{PyErr, create_exception};

create_exception!(tributary, Error, PyException, "Anything that this package raises by itself.");
create_exception!(tributary, ConfigurationError, Error, "A setting is missing or cannot be used.");
create_exception!(tributary, EnrollmentError, Error, "The participant is not enrolled, was revoked, or has expired.");
create_exception!(tributary, JournalError, Error, "The journal cannot be used: see the text for what to do.");
create_exception!(tributary, Overdue, Error, "The round no longer waits for this job; go on with the next one.");
create_exception!(tributary, ClosedError, Error, "The participant was closed, or belongs to another process.");
create_exception!(tributary, UpdateError, PyValueError, "The update does not fit the model. Nothing was sent.");

/// For settings that make no participant.
pub(crate) fn build(error: &BuildError) -> PyErr {
    match error {
        BuildError::Participant(error) => participant(error),
        _ => ConfigurationError::new_err(error.to_string()),
    }
}

/// For a participant that ended early.
pub(crate) fn participant(error: &ParticipantError) -> PyErr {
    let text = error.to_string();
    match error {
        ParticipantError::NotEnrolled
        | ParticipantError::EnrollmentRefused(_)
        | ParticipantError::Revoked(_)
        | ParticipantError::Expired(_)
        | ParticipantError::Uncertified(_)
        | ParticipantError::PreIssuedCertificate(_)
        | ParticipantError::Certificate(_) => EnrollmentError::new_err(text),
        ParticipantError::Journal(_) => JournalError::new_err(text),
        // The errors of a newer SDK, and what a coordinator refuses for good.
        _ => Error::new_err(text),
    }
}

/// How a participant ended, for `Participant.next`.
pub(crate) fn outcome(end: &End) -> Result<&'static str, PyErr> {
    match end {
        Ok(client_sdk::Outcome::TaskOver { .. }) => Ok("task_over"),
        Ok(client_sdk::Outcome::Stopped) => Ok("stopped"),
        Err(error) => Err(participant(error)),
    }
}

/// After `close`, or in a process that was forked from the one that has the participant.
pub(crate) fn closed(why: &str) -> PyErr {
    ClosedError::new_err(why.to_owned())
}
