//! Errors that end a participant.

use wire::ParticipantId;
use wire::problem::Problem;

use crate::identity::{CertificateError, IdentityError};
use crate::journal::JournalError;
use crate::transport::{TransportError, with_causes};

/// Why a participant ended early. Temporary errors are retried instead.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ParticipantError {
    /// The journal lacks a certificate, and the app gave no token to get one.
    #[error("this participant is not enrolled: give it an enrolment token once, or the journal it was enrolled with")]
    NotEnrolled,
    /// The app names other authorities than the one that certified this participant, and gave no new token to enrol
    /// again with.
    #[error(
        "participant {participant} was certified by another authority than the CA file names: if the coordinator's authority was replaced, start with a new token (`tributary token create --enrollment --participant {participant}`, then `--token`) and the journal it has: it keeps what it has learnt and spent; where certificates are issued elsewhere, it needs a new one, too"
    )]
    AuthorityReplaced {
        /// Its id, which the old authority certified.
        participant: ParticipantId,
    },
    /// The coordinator rejected the token.
    #[error("enrolment was refused: {0}")]
    EnrollmentRefused(Box<Problem>),
    /// This participant was revoked, by an operator or at its own request.
    #[error("this participant was revoked: {0}")]
    Revoked(Box<Problem>),
    /// The certificate has expired.
    #[error(
        "this participant's certificate has expired: {0}; give it a new token and the journal it has (`tributary token create --enrollment --participant ID`): it keeps what it has learnt and spent; where certificates are issued elsewhere, it needs a new one, too"
    )]
    Expired(Box<Problem>),
    /// The coordinator rejected a request for good.
    #[error("the coordinator refused to {what}: {problem}")]
    Refused {
        /// The action that was rejected.
        what: &'static str,
        problem: Box<Problem>,
    },
    /// The journal could not be read or written. Data that depend on the record were not sent.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The key cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The coordinator's certificate for this participant has another issuer, key or holder than expected.
    #[error("the certificate from the coordinator is refused: {0}")]
    Uncertified(CertificateError),
    /// The app's certificate is not valid for this participant.
    #[error("the certificate that was given to this participant cannot be used: {0}")]
    PreIssuedCertificate(CertificateError),
    /// The certificate from the coordinator is unusable.
    #[error("the certificate cannot be used: {0}")]
    Certificate(TransportError),
    /// The thread of a [`Runner`](crate::runner::Runner) panicked, by a defect of the SDK or of the app's code.
    #[error("the participant's thread panicked, and said why on stderr")]
    Panicked,
}

/// The problem inside, or an equivalent one.
pub(in crate::participant) fn problem_of(error: TransportError) -> Box<Problem> {
    match error {
        TransportError::Problem { problem, .. } => problem,
        TransportError::Unreachable(cause) | TransportError::Protocol(cause) => {
            Box::new(Problem::new(wire::problem::ProblemType::Internal, with_causes(&cause)))
        }
    }
}
