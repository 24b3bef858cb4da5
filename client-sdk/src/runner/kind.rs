//! Error categories, for languages that distinguish errors by type or number.

use crate::participant::{BuildError, ParticipantError, WithdrawalError};

/// The app's remedy for an error. The error's text explains it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A setting is missing or cannot be used.
    Settings,
    /// The participant is not enrolled, was revoked, has expired, or its CA was replaced: it needs a token.
    Enrollment,
    /// The journal cannot be used.
    Journal,
    /// The participant's thread panicked.
    Defect,
    /// Any other error, such as a permanent rejection by the coordinator.
    Other,
}

impl From<&BuildError> for Kind {
    fn from(error: &BuildError) -> Self {
        match error {
            BuildError::Participant(error) => error.into(),
            BuildError::Missing(_)
            | BuildError::BadName { .. }
            | BuildError::BadLabel { .. }
            | BuildError::BadPolicy(_)
            | BuildError::BadMembers(_)
            | BuildError::BadPrivacyPolicy
            | BuildError::Transport(_)
            | BuildError::Thread(_)
            | BuildError::TwoKeys
            | BuildError::Randomness => Self::Settings,
        }
    }
}

impl From<&ParticipantError> for Kind {
    fn from(error: &ParticipantError) -> Self {
        match error {
            ParticipantError::NotEnrolled
            | ParticipantError::AuthorityReplaced { .. }
            | ParticipantError::EnrollmentRefused(_)
            | ParticipantError::Revoked(_)
            | ParticipantError::Expired(_)
            | ParticipantError::Uncertified(_)
            | ParticipantError::PreIssuedCertificate(_)
            | ParticipantError::Certificate(_) => Self::Enrollment,
            ParticipantError::Journal(_) => Self::Journal,
            ParticipantError::Panicked => Self::Defect,
            ParticipantError::Refused { .. } | ParticipantError::Identity(_) => Self::Other,
        }
    }
}

impl From<&WithdrawalError> for Kind {
    fn from(error: &WithdrawalError) -> Self {
        match error {
            WithdrawalError::Build(error) => error.into(),
            WithdrawalError::Unreachable(_) | WithdrawalError::Statement(_) => Self::Other,
        }
    }
}
