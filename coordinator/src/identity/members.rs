//! Who certifies participants: the coordinator's own authority, or one elsewhere whose key the coordinator never has, and which is
//! asked to sign or gives participants their certificates itself.

use std::sync::Arc;
use std::time::Duration;

use federation::id::{Digest, ParticipantId};
use federation::time::Timestamp;
use rcgen::PublicKeyData as _;
use rustls_pki_types::CertificateDer;
use wire::signer::SignRequest;

use super::authority::{Authority, AuthorityError, CsrError, Issued};
use super::issued::{MembersCa, PreIssued, PreIssuedError};
use super::signer::{Signer, SignerError};
use crate::random::Random;

/// Who certifies participants.
pub(crate) enum Members {
    /// The authority that vouches for the server, too.
    Own(Arc<Authority>),
    /// An authority elsewhere, which is asked to sign.
    Elsewhere(Signer),
    /// An authority elsewhere, which gives participants their certificates itself.
    PreIssued(MembersCa),
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
    /// A signing request was let through where none is signed.
    #[error("a signing request came to be signed where participants' certificates are issued elsewhere")]
    NothingIsSigned,
}

/// A signing request that was found to be one.
pub(crate) struct CheckedRequest {
    params: rcgen::CertificateSigningRequestParams,
    csr_pem: String,
    /// What the participant has for a signer elsewhere.
    evidence: Option<String>,
}

impl CheckedRequest {
    /// The Ed25519 public key, 32 bytes.
    fn key(&self) -> &[u8] {
        self.params.public_key.der_bytes()
    }
}

/// What a participant is to be known by: a key that is to be certified, or a certificate.
pub(crate) enum Credential {
    /// A key, for a certificate of this coordinator's or its signer's.
    Request(Box<CheckedRequest>),
    /// A certificate from elsewhere.
    PreIssued(PreIssued),
}

impl Credential {
    /// The Ed25519 public key that it is, or binds.
    pub(crate) fn key(&self) -> &[u8] {
        match self {
            Self::Request(request) => request.key(),
            Self::PreIssued(certificate) => &certificate.key.0,
        }
    }

    /// SHA-256 of what it is: of the key, or of the certificate.
    pub(crate) fn sha256(&self) -> Digest {
        match self {
            Self::Request(request) => crate::digest(request.key()),
            Self::PreIssued(certificate) => certificate.issued.fingerprint,
        }
    }
}

/// Why what a participant wants to be known by is refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CredentialError {
    /// A signing request that cannot be signed.
    #[error(transparent)]
    Request(#[from] CsrError),
    /// A certificate that is not admitted.
    #[error(transparent)]
    PreIssued(#[from] PreIssuedError),
    /// Here nothing is signed.
    #[error(
        "this coordinator signs no certificates: whoever runs the authority of members issues them to devices; show yours in the \
         TLS handshake, and send it as certificate_pem instead of csr_pem"
    )]
    CertifiedElsewhere,
    /// Here everything is signed.
    #[error("this coordinator has participants' certificates signed: send csr_pem, and no certificate_pem")]
    CertifiedHere,
}

impl Members {
    /// The certificate (DER) that participants' certificates are signed by.
    pub(crate) fn certificate(&self) -> &CertificateDer<'static> {
        match self {
            Self::Own(authority) => authority.certificate(),
            Self::Elsewhere(signer) => signer.certificate(),
            Self::PreIssued(ca) => ca.certificate(),
        }
    }

    /// Checks what a participant wants to be known by; see [`Authority::check_request`] and [`MembersCa::judge`]. `evidence` is
    /// for a signer elsewhere.
    ///
    /// # Errors
    /// [`CredentialError`].
    pub(crate) fn check(
        &self,
        csr_pem: Option<String>,
        certificate_pem: Option<&str>,
        evidence: Option<String>,
        now: Timestamp,
    ) -> Result<Credential, CredentialError> {
        match self {
            Self::Own(_) | Self::Elsewhere(_) => {
                let (Some(csr_pem), None) = (csr_pem, certificate_pem) else {
                    return Err(CredentialError::CertifiedHere);
                };
                let params = Authority::check_request(&csr_pem)?;
                Ok(Credential::Request(Box::new(CheckedRequest { params, csr_pem, evidence })))
            }
            Self::PreIssued(ca) => {
                let (None, Some(chain_pem)) = (csr_pem, certificate_pem) else {
                    return Err(CredentialError::CertifiedElsewhere);
                };
                Ok(Credential::PreIssued(ca.judge(chain_pem, now)?))
            }
        }
    }

    /// The certificate of what was checked as `participant`'s; one that is signed here is for at most `lifetime` from `now`.
    ///
    /// # Errors
    /// [`IssueError`].
    pub(crate) async fn issue(
        &self,
        credential: Credential,
        participant: ParticipantId,
        lifetime: Duration,
        random: &Random,
        now: Timestamp,
    ) -> Result<Issued, IssueError> {
        let request = match credential {
            Credential::Request(request) => request,
            Credential::PreIssued(certificate) => return Ok(certificate.issued),
        };
        match self {
            Self::Own(authority) => Ok(authority.issue(request.params, participant, lifetime, random, now)?),
            Self::Elsewhere(signer) => {
                let key = request.key().to_vec();
                let CheckedRequest { csr_pem, evidence, .. } = *request;
                let request = SignRequest { participant, csr_pem, lifetime_s: lifetime.as_secs(), evidence };
                Ok(signer.issue(&request, &key, now).await?)
            }
            Self::PreIssued(_) => Err(IssueError::NothingIsSigned),
        }
    }
}
