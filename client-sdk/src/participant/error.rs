//! Why a participant cannot go on.

use wire::problem::Problem;

use crate::identity::{CertificateError, IdentityError};
use crate::journal::JournalError;
use crate::transport::{TransportError, with_causes};

/// Why a participant ended before it was told to. Anything that time can mend is tried again instead.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ParticipantError {
    /// There is neither a certificate in the journal nor a token to get one.
    #[error("this participant is not enrolled: give it an enrolment token once, or the journal it was enrolled with")]
    NotEnrolled,
    /// The token was not taken.
    #[error("enrolment was refused: {0}")]
    EnrollmentRefused(Box<Problem>),
    /// An operator has revoked this participant.
    #[error("this participant was revoked: {0}")]
    Revoked(Box<Problem>),
    /// The certificate has ended.
    #[error(
        "this participant's certificate has expired: {0}; give it a new token and the journal it has (`tributary token create --enrollment --participant ID`): it keeps what it has learnt and spent; where certificates are issued elsewhere, it needs a new one, too"
    )]
    Expired(Box<Problem>),
    /// The coordinator refuses something that trying again cannot mend.
    #[error("the coordinator refused to {what}: {problem}")]
    Refused {
        /// What was asked for.
        what: &'static str,
        /// What it said.
        problem: Box<Problem>,
    },
    /// What has to be remembered could not be kept or read. Nothing was sent that depends on it.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The key cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The coordinator gave a certificate that is not taken: its issuer, its key or its holder is another.
    #[error("the certificate from the coordinator is refused: {0}")]
    Uncertified(CertificateError),
    /// The certificate that the app gave cannot be this participant's.
    #[error("the certificate that was given to this participant cannot be used: {0}")]
    PreIssuedCertificate(CertificateError),
    /// The certificate that the coordinator gave cannot be used.
    #[error("the certificate cannot be used: {0}")]
    Certificate(TransportError),
}

/// The problem inside, or what amounts to one.
pub(super) fn problem_of(error: TransportError) -> Box<Problem> {
    match error {
        TransportError::Problem { problem, .. } => problem,
        TransportError::Unreachable(cause) | TransportError::Protocol(cause) => {
            Box::new(Problem::new(wire::problem::ProblemType::Internal, with_causes(&cause)))
        }
    }
}
