//! Participants' certificates of an external authority, and their verification.

use std::path::Path;
use std::time::Duration;

use federation::id::ParticipantId;
use federation::time::Timestamp;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use secure_agg::IdentityKey;
use wire::certificate::{BadChain, Holder, Issuers, Unfit, chain_der};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::authority::{AuthorityError, Issued};

/// The external authority for participants' certificates, without its key.
pub(crate) struct MembersCa {
    certificate: CertificateDer<'static>,
    certificate_pem: String,
    issuers: Issuers,
}

/// An externally issued participant certificate.
#[derive(Clone, Debug)]
pub(crate) struct PreIssued {
    /// The participant named in it.
    pub(crate) participant: ParticipantId,
    /// The key bound by it.
    pub(crate) key: IdentityKey,
    /// The stored part, also returned to its holder.
    pub(crate) issued: Issued,
}

/// Reasons for rejecting such a certificate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PreIssuedError {
    /// The chain is not PEM.
    #[error("certificate_pem: {0}")]
    Chain(#[from] BadChain),
    /// Another authority signed it, or it is not a participant's.
    #[error("certificate_pem: {0}")]
    Unfit(#[from] Unfit),
    /// It is not valid yet, or has expired.
    #[error("certificate_pem: it holds from {0} to {1}, and it is {2}: give one that holds")]
    Time(Timestamp, Timestamp, Timestamp),
}

impl MembersCa {
    /// Reads the authority's certificate.
    ///
    /// # Errors
    /// [`AuthorityError`].
    pub(crate) fn open(file: &Path) -> Result<Self, AuthorityError> {
        let (certificate, certificate_pem) = certificate(file)?;
        let count = CertificateDer::pem_slice_iter(certificate_pem.as_bytes()).count();
        if count > 1 {
            return Err(AuthorityError::Several { path: file.to_owned(), count });
        }
        if !X509Certificate::from_der(&certificate).is_ok_and(|(_, parsed)| parsed.is_ca()) {
            return Err(AuthorityError::NoAuthority { path: file.to_owned() });
        }
        let issuers = Issuers::new(vec![certificate.to_vec()]);
        Ok(Self { certificate, certificate_pem, issuers })
    }

    /// The authority's certificate in DER.
    pub(crate) fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// The contents and bytes of the first certificate of a PEM chain, if the authority signed it.
    ///
    /// # Errors
    /// [`PreIssuedError`].
    pub(super) fn read(&self, chain_pem: &str) -> Result<(Holder, Vec<u8>), PreIssuedError> {
        // A readable chain is not empty.
        let own = chain_der(chain_pem)?.into_iter().next().ok_or(Unfit::Unreadable)?;
        Ok((self.issuers.read(&own)?, own))
    }

    /// A currently valid certificate issued by the authority directly to a participant.
    ///
    /// # Errors
    /// [`PreIssuedError`].
    pub(super) fn judge(&self, chain_pem: &str, now: Timestamp) -> Result<PreIssued, PreIssuedError> {
        let (holder, own) = self.read(chain_pem)?;
        let is_good = holder.holds_at(now);
        let Holder { participant, key, begins_at, expires_at } = holder;
        if !is_good {
            return Err(PreIssuedError::Time(begins_at, expires_at, now));
        }
        let issued = self.issued(chain_pem, &own, begins_at, expires_at);
        Ok(PreIssued { participant, key, issued })
    }

    /// The stored part of an accepted certificate; it is renewed after two thirds of the time from `begins_at`.
    pub(super) fn issued(&self, chain_pem: &str, own: &[u8], begins_at: Timestamp, expires_at: Timestamp) -> Issued {
        let left = Duration::from_millis(expires_at.0.abs_diff(begins_at.0));
        Issued {
            chain_pem: leaf(chain_pem) + &self.certificate_pem,
            fingerprint: crate::digest(own),
            expires_at,
            renew_at: begins_at.plus(left * 2 / 3),
        }
    }
}

/// The first certificate of a valid chain.
fn leaf(chain_pem: &str) -> String {
    const END: &str = "-----END CERTIFICATE-----";
    let end = chain_pem.find(END).map_or(chain_pem.len(), |at| at + END.len());
    format!("{}\n", &chain_pem[..end])
}

/// The first certificate of a file, in DER, and the whole file.
pub(super) fn certificate(file: &Path) -> Result<(CertificateDer<'static>, String), AuthorityError> {
    let pem = std::fs::read_to_string(file).map_err(|source| AuthorityError::Io { path: file.to_owned(), source })?;
    let der = CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|_| AuthorityError::Unreadable {
        path: file.to_owned(),
        what: "certificate",
        source: rcgen::Error::CouldNotParseCertificate,
    })?;
    Ok((der, pem))
}
