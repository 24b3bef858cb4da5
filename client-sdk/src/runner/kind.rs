//! Errors by what an app can do about them, for languages that tell errors by a type or a number.

use crate::participant::{BuildError, ParticipantError};

/// What an app can do about an error; the error's text says it in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A setting is missing or cannot be used.
    Settings,
    /// The participant is not enrolled, was revoked, has expired, or its authority was replaced: it needs a token.
    Enrollment,
    /// The journal cannot be used.
    Journal,
    /// The participant's thread panicked.
    Defect,
    /// Anything else, such as what a coordinator refuses for good.
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
