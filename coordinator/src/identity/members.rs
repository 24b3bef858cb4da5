//! The authority of participants: the coordinator's own, or an external one with its own key, which signs requests or issues certificates
//! directly.

use std::sync::Arc;
use std::time::Duration;

use federation::id::{Digest, ParticipantId};
use federation::time::Timestamp;
use rcgen::PublicKeyData as _;
use rustls_pki_types::CertificateDer;
use wire::inspect::CertifiedBy;
use wire::signer::SignRequest;

use super::authority::{Authority, AuthorityError, CsrError, Issued};
use super::issued::{MembersCa, PreIssued, PreIssuedError};
use super::signer::{Signer, SignerError};
use crate::random::Random;

/// The participants' certificate authority.
pub(crate) enum Members {
    /// The coordinator's own authority, which also certifies the server.
    Own(Arc<Authority>),
    /// An external authority for signing requests.
    Elsewhere(Signer),
    /// An external authority with its own issuance.
    PreIssued(MembersCa),
}

/// Reasons why no certificate was issued.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IssueError {
    /// Our own authority failed.
    #[error(transparent)]
    Own(#[from] AuthorityError),
    /// The external authority did not sign.
    #[error(transparent)]
    Elsewhere(#[from] SignerError),
    /// A signing request arrived without a signing authority.
    #[error("a signing request came to be signed where participants' certificates are issued elsewhere")]
    NothingIsSigned,
}

/// A verified signing request.
pub(crate) struct CheckedRequest {
    params: rcgen::CertificateSigningRequestParams,
    csr_pem: String,
    /// The participant's evidence for an external signer.
    evidence: Option<String>,
}

impl CheckedRequest {
    /// The Ed25519 public key, 32 bytes.
    fn key(&self) -> &[u8] {
        self.params.public_key.der_bytes()
    }
}

/// A participant's credential: a key to certify, or a certificate.
pub(crate) enum Credential {
    /// A key, certified by this coordinator or its signer.
    Request(Box<CheckedRequest>),
    /// An externally issued certificate.
    PreIssued(PreIssued),
}

impl Credential {
    /// The Ed25519 public key in the request or certificate.
    pub(crate) fn key(&self) -> &[u8] {
        match self {
            Self::Request(request) => request.key(),
            Self::PreIssued(certificate) => &certificate.key.0,
        }
    }

    /// SHA-256 of the key or of the certificate.
    pub(crate) fn sha256(&self) -> Digest {
        match self {
            Self::Request(request) => crate::digest(request.key()),
            Self::PreIssued(certificate) => certificate.issued.fingerprint,
        }
    }
}

/// Reasons for rejecting a credential.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CredentialError {
    /// An unsuitable signing request.
    #[error(transparent)]
    Request(#[from] CsrError),
    /// A rejected certificate.
    #[error(transparent)]
    PreIssued(#[from] PreIssuedError),
    /// This coordinator signs no certificates.
    #[error(
        "this coordinator signs no certificates: whoever runs the authority of members issues them to devices; show yours in the \
         TLS handshake, and send it as certificate_pem instead of csr_pem"
    )]
    CertifiedElsewhere,
    /// This coordinator accepts only signing requests.
    #[error("this coordinator has participants' certificates signed: send csr_pem, and no certificate_pem")]
    CertifiedHere,
}

impl Members {
    /// Issuer of participants' certificates, for operators' views.
    pub(crate) const fn certified_by(&self) -> CertifiedBy {
        match self {
            Self::Own(_) => CertifiedBy::Coordinator,
            Self::Elsewhere(_) => CertifiedBy::ExternalSigner,
            Self::PreIssued(_) => CertifiedBy::ExternalAuthority,
        }
    }

    /// The certificate (DER) of the participants' issuer.
    pub(crate) fn certificate(&self) -> &CertificateDer<'static> {
        match self {
            Self::Own(authority) => authority.certificate(),
            Self::Elsewhere(signer) => signer.certificate(),
            Self::PreIssued(ca) => ca.certificate(),
        }
    }

    /// Checks a participant's credential; see [`Authority::check_request`] and [`MembersCa::judge`]. `evidence` is for an external signer.
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

    /// Returns the certificate of a checked credential for `participant`. A certificate signed on request lasts at most `lifetime` from
    /// `now`.
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
