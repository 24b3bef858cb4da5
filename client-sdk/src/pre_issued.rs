//! Certificates that this device has from elsewhere, for example from its company's device management, each with its private key.

use std::sync::Arc;

use secure_agg::Signer as _;
use wire::certificate::{Holder, Issuers, chain_der};
use wire::{Timestamp, base64};
use zeroize::Zeroizing;

use crate::identity::{CertificateError, Certified, Identity, SigningKey, holder};

/// A certificate that somebody else issued to this device, with its private key. Neither printable nor copyable; the key is
/// erased when it is dropped.
pub struct PreIssued {
    chain_pem: String,
    key: SigningKey,
}

impl PreIssued {
    /// From a chain of certificates in PEM, the device's own first, and its Ed25519 private key in PEM (PKCS #8, `PRIVATE KEY`).
    ///
    /// # Errors
    /// [`CertificateError::NoKey`]. Whether the certificate is one that can be used is looked at when it is.
    pub fn from_pem(chain_pem: impl Into<String>, key_pem: &str) -> Result<Self, CertificateError> {
        let pkcs8 = pkcs8(key_pem).ok_or(CertificateError::NoKey)?;
        let key = SigningKey::from_pkcs8(&pkcs8).map_err(|_| CertificateError::NoKey)?;
        Ok(Self { chain_pem: chain_pem.into(), key })
    }

    /// Who that is, if one of `members` signed the certificate, for this very key.
    fn identity(self, members: &Issuers) -> Result<Given, CertificateError> {
        let (holder, own) = holder(&self.chain_pem, members)?;
        if holder.key != self.key.signer()?.identity() {
            return Err(CertificateError::Key);
        }
        let certified = Certified {
            participant: holder.participant,
            // The coordinator says.
            name: String::new(),
            certificate_pem: self.chain_pem,
            expires_at: holder.expires_at,
            renew_at: holder.expires_at,
        };
        let identity = Arc::new(Identity { key: Arc::new(self.key), certified });
        Ok(Given { identity, own, holder })
    }
}

/// The first private key of a PEM file. Read here, since readers of PEM leave copies of what they read behind.
fn pkcs8(key_pem: &str) -> Option<Zeroizing<Vec<u8>>> {
    let (_, rest) = key_pem.split_once("-----BEGIN PRIVATE KEY-----")?;
    let (body, _) = rest.split_once("-----END PRIVATE KEY-----")?;
    let mut text = Zeroizing::new(String::with_capacity(body.len()));
    text.extend(body.chars().filter(|c| !c.is_ascii_whitespace()));
    Some(Zeroizing::new(base64::decode(&text)?))
}

type Read = dyn Fn() -> Result<PreIssued, CertificateError> + Send + Sync;

/// Where a participant's certificates come from, if the coordinator is not to have them made. None by default.
#[derive(Clone, Default)]
pub struct Certificates(Option<Arc<Read>>);

/// A certificate from elsewhere that was read and can be this participant's.
pub(crate) struct Given {
    pub(crate) identity: Arc<Identity>,
    own: Vec<u8>,
    holder: Holder,
}

impl Given {
    /// Until then it takes no other's place: members whose clock is behind may refuse it.
    pub(crate) fn begins_at(&self) -> Timestamp {
        self.holder.begins_at
    }

    pub(crate) fn expires_at(&self) -> Timestamp {
        self.holder.expires_at
    }
}

impl Certificates {
    /// Read when the participant begins, and again from two thirds of the present one's time on.
    #[must_use]
    pub fn new(read: impl Fn() -> Result<PreIssued, CertificateError> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(read)))
    }

    pub(crate) fn are_given(&self) -> bool {
        self.0.is_some()
    }

    /// The one that there is, unless it is `present` or began before it: a file that was left behind replaces nothing. It must
    /// be for another key than `present`: whoever has stolen that one is to be rid of with it.
    ///
    /// # Errors
    /// [`CertificateError`]: it cannot be had, or cannot be this participant's.
    pub(crate) fn other_than(
        &self,
        present: Option<&Identity>,
        members: &Issuers,
    ) -> Result<Option<Given>, CertificateError> {
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
