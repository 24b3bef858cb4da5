//! Externally issued certificates with private keys, for example from a company's device management.

use std::sync::Arc;

use secure_agg::Signer as _;
use wire::certificate::{Holder, Issuers, chain_der};
use wire::{Timestamp, base64};
use zeroize::Zeroizing;

use crate::identity::{CertificateError, Certified, Identity, SigningKey, holder};

/// A certificate issued to this device by an external authority, with its private key. It cannot be printed or copied;
/// the key is erased when dropped.
pub struct PreIssued {
    chain_pem: String,
    key: SigningKey,
}

impl PreIssued {
    /// From a chain of certificates in PEM, the device's own first, and its Ed25519 private key in PEM (PKCS #8,
    /// `PRIVATE KEY`).
    ///
    /// # Errors
    /// [`CertificateError::NoKey`]. The certificate is checked when it is used.
    pub fn from_pem(chain_pem: impl Into<String>, key_pem: &str) -> Result<Self, CertificateError> {
        let pkcs8 = pkcs8(key_pem).ok_or(CertificateError::NoKey)?;
        let key = SigningKey::from_pkcs8(&pkcs8).map_err(|_| CertificateError::NoKey)?;
        Ok(Self { chain_pem: chain_pem.into(), key })
    }

    /// The identity, if one of `members` signed the certificate for this key.
    fn identity(self, members: &Issuers) -> Result<UsableCertificate, CertificateError> {
        let (holder, own) = holder(&self.chain_pem, members)?;
        if holder.key != self.key.signer()?.identity() {
            return Err(CertificateError::Key);
        }
        let certified = Certified {
            participant: holder.participant,
            // The coordinator assigns it.
            name: String::new(),
            certificate_pem: self.chain_pem,
            expires_at: holder.expires_at,
            renew_at: holder.expires_at,
        };
        let identity = Arc::new(Identity { key: Arc::new(self.key), certified });
        Ok(UsableCertificate { identity, own, holder })
    }
}

/// The first private key of a PEM file. Parsed here because PEM libraries leave copies in memory.
fn pkcs8(key_pem: &str) -> Option<Zeroizing<Vec<u8>>> {
    let (_, rest) = key_pem.split_once("-----BEGIN PRIVATE KEY-----")?;
    let (body, _) = rest.split_once("-----END PRIVATE KEY-----")?;
    let mut text = Zeroizing::new(String::with_capacity(body.len()));
    text.extend(body.chars().filter(|c| !c.is_ascii_whitespace()));
    Some(Zeroizing::new(base64::decode(&text)?))
}

type Read = dyn Fn() -> Result<PreIssued, CertificateError> + Send + Sync;

/// Source of externally issued certificates. Empty by default.
#[derive(Clone, Default)]
pub struct Certificates(Option<Arc<Read>>);

/// An externally issued certificate that was read and is usable for this participant.
pub(crate) struct UsableCertificate {
    pub(crate) identity: Arc<Identity>,
    own: Vec<u8>,
    holder: Holder,
}

impl UsableCertificate {
    /// Start of validity. It replaces another certificate only from then on, since participants with a slow clock may
    /// reject it.
    pub(crate) fn begins_at(&self) -> Timestamp {
        self.holder.begins_at
    }

    pub(crate) fn expires_at(&self) -> Timestamp {
        self.holder.expires_at
    }
}

impl Certificates {
    /// `read` is called when the participant starts, and from two thirds of the current certificate's lifetime on.
    #[must_use]
    pub fn new(read: impl Fn() -> Result<PreIssued, CertificateError> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(read)))
    }

    pub(crate) fn are_pre_issued(&self) -> bool {
        self.0.is_some()
    }

    /// The current certificate from the source, unless it is `present` or began before it, so that a stale file is
    /// ignored. It must be for another key than `present`, so that a thief of that key is locked out.
    ///
    /// # Errors
    /// [`CertificateError`]: it cannot be read, or is not usable for this participant.
    pub(crate) fn other_than(
        &self,
        present: Option<&Identity>,
        members: &Issuers,
    ) -> Result<Option<UsableCertificate>, CertificateError> {
        let Some(read) = &self.0 else { return Ok(None) };
        let given = read()?.identity(members)?;
        let Some(present) = present else { return Ok(Some(given)) };
        let (named, expected) = (given.identity.certified.participant, present.certified.participant);
        if named != expected {
            return Err(CertificateError::Participant { named, expected });
        }
        let own = chain_der(&present.certified.certificate_pem)?.into_iter().next().unwrap_or_default();
        let began = wire::certificate::holder(&own).map_or(Timestamp(0), |holder| holder.begins_at);
        if given.own == own || given.holder.begins_at < began {
            return Ok(None);
        }
        if given.holder.key == present.key.signer()?.identity() {
            return Err(CertificateError::SameKey);
        }
        Ok(Some(given))
    }
}

impl std::fmt::Debug for Certificates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "Certificates(…)" } else { "Certificates(none)" })
    }
}
