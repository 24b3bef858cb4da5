//! The failures of a participant, with their exit codes.

use client_sdk::journal::JournalError;
use client_sdk::participant::{BuildError, ParticipantError};

use crate::failure::{Exit, Failure};

/// The process's result for a participant's end.
pub(crate) fn failure(error: &ParticipantError) -> Failure {
    let problem = |problem: &wire::problem::Problem| {
        let mut failure = Failure::from(problem.clone());
        failure.detail = error.to_string();
        failure
    };
    match error {
        ParticipantError::NotEnrolled | ParticipantError::AuthorityReplaced { .. } => Failure::new(Exit::Denied, error),
        ParticipantError::EnrollmentRefused(said)
        | ParticipantError::Revoked(said)
        | ParticipantError::Expired(said)
        | ParticipantError::Refused { problem: said, .. } => problem(said),
        ParticipantError::Journal(JournalError::Restored { .. }) => Failure::new(Exit::Integrity, error),
        ParticipantError::Journal(_) => Failure::new(Exit::Io, error),
        ParticipantError::PreIssuedCertificate(_) => Failure::new(Exit::Configuration, error),
        ParticipantError::Certificate(_) | ParticipantError::Uncertified(_) => Failure::new(Exit::Connection, error),
        _ => Failure::new(Exit::Internal, error),
    }
}

/// The failure for a participant that cannot be built.
pub(crate) fn build_failure(error: &BuildError) -> Failure {
    match error {
        BuildError::Participant(error) => failure(error),
        BuildError::BadName { .. } | BuildError::BadPolicy(_) => Failure::new(Exit::Usage, error),
        BuildError::Transport(_) | BuildError::BadMembers(_) => Failure::new(Exit::Configuration, error),
        _ => Failure::new(Exit::Internal, error),
    }
}
