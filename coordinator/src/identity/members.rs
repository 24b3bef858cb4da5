//! Who certifies participants: the coordinator's own authority, or one elsewhere whose key the coordinator never has.

use std::sync::Arc;
use std::time::Duration;

use federation::id::ParticipantId;
use federation::time::Timestamp;
use rcgen::PublicKeyData as _;
use rustls_pki_types::CertificateDer;
use wire::signer::SignRequest;

use super::authority::{Authority, AuthorityError, CsrError, Issued};
use super::signer::{Signer, SignerError};
use crate::random::Random;

/// Who certifies participants.
pub(crate) enum Members {
    /// The authority that vouches for the server, too.
    Own(Arc<Authority>),
    /// An authority elsewhere.
    Elsewhere(Signer),
}

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IssueError {
    /// Our own authority could not sign.
    #[error(transparent)]
    Own(#[from] AuthorityError),
    /// The one elsewhere did not.
    #[error(transparent)]
    Elsewhere(#[from] SignerError),
}

/// A signing request that was found to be one.
pub(crate) struct CheckedRequest {
    params: rcgen::CertificateSigningRequestParams,
    csr_pem: String,
    /// What the participant has for a signer elsewhere.
    evidence: Option<String>,
}

impl CheckedRequest {
    /// Checks a signing request; see [`Authority::check_request`].
    ///
    /// # Errors
    /// [`CsrError`].
    pub(crate) fn new(csr_pem: String, evidence: Option<String>) -> Result<Self, CsrError> {
        Ok(Self { params: Authority::check_request(&csr_pem)?, csr_pem, evidence })
    }

    /// The Ed25519 public key, 32 bytes.
    pub(crate) fn key(&self) -> &[u8] {
        self.params.public_key.der_bytes()
    }
}

impl Members {
    /// The certificate (DER) that participants' certificates are signed by.
    pub(crate) fn certificate(&self) -> &CertificateDer<'static> {
        match self {
            Self::Own(authority) => authority.certificate(),
            Self::Elsewhere(signer) => signer.certificate(),
        }
    }

    /// A certificate for the key of a request as `participant`'s, for at most `lifetime` from `now`.
    ///
    /// # Errors
    /// [`IssueError`].
    pub(crate) async fn issue(
        &self,
        request: CheckedRequest,
        participant: ParticipantId,
        lifetime: Duration,
        random: &Random,
        now: Timestamp,
    ) -> Result<Issued, IssueError> {
        match self {
            Self::Own(authority) => Ok(authority.issue(request.params, participant, lifetime, random, now)?),
            Self::Elsewhere(signer) => {
                let key = request.key().to_vec();
                let CheckedRequest { csr_pem, evidence, .. } = request;
                let request = SignRequest { participant, csr_pem, lifetime_s: lifetime.as_secs(), evidence };
                Ok(signer.issue(&request, &key, now).await?)
            }
        }
    }
}
