//! A participant's identity: an Ed25519 key kept on the device, and its certificate.
//!
//! The key is kept as PKCS #8 and erased when dropped. Only the journal and the TLS stack receive it; either may be the app's own.

use rcgen::{CertificateParams, KeyPair, PKCS_ED25519};
use secure_agg::{MemorySigner, Signer as _};
use serde::{Deserialize, Serialize};
use wire::certificate::{BadChain, Holder, Issuers, Unfit, chain_der};
use wire::participant::EnrollReply;
use wire::{ParticipantId, Timestamp};
use zeroize::Zeroizing;

/// The participant's key is unusable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the participant's key cannot be made or used: {0}")]
pub struct IdentityError(String);

impl From<rcgen::Error> for IdentityError {
    fn from(error: rcgen::Error) -> Self {
        Self(error.to_string())
    }
}

type MakeEvidence = dyn Fn(&str) -> String + Send + Sync;

/// Creates evidence for signing requests, for an external authority. Empty by default.
#[derive(Clone, Default)]
pub struct Evidence(Option<std::sync::Arc<MakeEvidence>>);

impl Evidence {
    /// `make` is called with each signing request in PEM.
    #[must_use]
    pub fn new(make: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        Self(Some(std::sync::Arc::new(make)))
    }

    pub(crate) fn of(&self, csr_pem: &str) -> Option<String> {
        self.0.as_ref().map(|make| make(csr_pem))
    }
}

impl std::fmt::Debug for Evidence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "Evidence(…)" } else { "Evidence(none)" })
    }
}

/// Reasons a certificate is not accepted as this participant's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    /// It cannot be parsed.
    #[error(transparent)]
    Chain(#[from] BadChain),
    /// Another authority signed it, or it is not a participant's.
    #[error(
        "it is not signed by an authority that may certify members: the one in `members_ca_pem`, or without that the one in \
         `ca_pem`, by which the coordinator itself is known"
    )]
    Issuer,
    /// It lacks a property of participants' certificates.
    #[error(transparent)]
    Unfit(Unfit),
    /// It is for another key.
    #[error("it is for another key than this participant's own")]
    Key,
    /// It is for the same key as the certificate that it would replace.
    #[error(
        "it is for the same key as the present one, so whoever has stolen that key would stay this participant: give one for a new key"
    )]
    SameKey,
    /// Its private key cannot be parsed.
    #[error(
        "its private key is not Ed25519 in PEM (PKCS #8, `-----BEGIN PRIVATE KEY-----`), with which alone participants sign"
    )]
    NoKey,
    /// It cannot be read.
    #[error("it cannot be read: {0}")]
    Unavailable(String),
    /// It has expired.
    #[error("it ended at {0}: give one that holds, of the same participant and with its key")]
    Ended(Timestamp),
    /// It names another participant.
    #[error("it names participant {named}, not {expected}")]
    Participant { named: ParticipantId, expected: ParticipantId },
    /// The participant's own key is unusable.
    #[error(transparent)]
    Identity(#[from] IdentityError),
}

/// An Ed25519 private key. It cannot be printed or copied.
pub struct SigningKey {
    pkcs8: Zeroizing<Vec<u8>>,
}

impl SigningKey {
    /// Generates a key from the system's randomness.
    ///
    /// # Errors
    /// [`IdentityError`] if the system has no randomness.
    pub fn generate() -> Result<Self, IdentityError> {
        let pair = KeyPair::generate_for(&PKCS_ED25519)?;
        Ok(Self { pkcs8: Zeroizing::new(pair.serialize_der()) })
    }

    /// # Errors
    /// [`IdentityError`] unless it is Ed25519 in PKCS #8.
    pub fn from_pkcs8(pkcs8: &[u8]) -> Result<Self, IdentityError> {
        let key = Self { pkcs8: Zeroizing::new(pkcs8.to_vec()) };
        key.pair()?;
        Ok(key)
    }

    /// The key in PKCS #8, for the journal and the TLS stack. Never log or send it.
    #[must_use]
    pub fn expose_pkcs8(&self) -> &[u8] {
        &self.pkcs8
    }

    /// A signing request in PEM. Its subject is empty: the coordinator assigns the participant's name.
    ///
    /// # Errors
    /// [`IdentityError`].
    pub fn signing_request(&self) -> Result<String, IdentityError> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name = rcgen::DistinguishedName::new();
        Ok(params.serialize_request(&self.pair()?)?.pem()?)
    }

    /// A signer for this participant's secure aggregation messages.
    ///
    /// # Errors
    /// [`IdentityError`] if the key cannot be used.
    pub fn signer(&self) -> Result<MemorySigner, IdentityError> {
        MemorySigner::from_pkcs8(&self.pkcs8).map_err(|error| IdentityError(error.to_string()))
    }

    fn pair(&self) -> Result<KeyPair, IdentityError> {
        let der = rcgen_key(&self.pkcs8);
        Ok(KeyPair::from_pkcs8_der_and_sign_algo(&der, &PKCS_ED25519)?)
    }
}

fn rcgen_key(pkcs8: &[u8]) -> rustls_pki_types::PrivatePkcs8KeyDer<'_> {
    pkcs8.into()
}

/// An authority's certificate; in the journal as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Certified {
    pub participant: ParticipantId,
    pub name: String,
    /// Its certificate, then the issuer's, in PEM.
    pub certificate_pem: String,
    pub expires_at: Timestamp,
    pub renew_at: Timestamp,
}

impl From<EnrollReply> for Certified {
    fn from(reply: EnrollReply) -> Self {
        let EnrollReply { participant, name, certificate_pem, expires_at, renew_at } = reply;
        Self { participant, name, certificate_pem, expires_at, renew_at }
    }
}

impl Certified {
    /// Accepts the coordinator's answer if one of `members` signed the certificate, for this key, and for the
    /// participant that the answer names.
    ///
    /// # Errors
    /// [`CertificateError`].
    pub fn checked(reply: EnrollReply, key: &SigningKey, members: &Issuers) -> Result<Self, CertificateError> {
        let (holder, _) = holder(&reply.certificate_pem, members)?;
        if holder.key != key.signer()?.identity() {
            return Err(CertificateError::Key);
        }
        if holder.participant != reply.participant {
            return Err(CertificateError::Participant { named: holder.participant, expected: reply.participant });
        }
        Ok(reply.into())
    }
}

/// The contents of the first certificate of a PEM chain, if one of `members` signed it, and that certificate (DER).
pub(crate) fn holder(chain_pem: &str, members: &Issuers) -> Result<(Holder, Vec<u8>), CertificateError> {
    // A parsed chain is not empty.
    let own = chain_der(chain_pem)?.into_iter().next().ok_or(CertificateError::Issuer)?;
    let holder = members.read(&own).map_err(|unfit| match unfit {
        Unfit::Issuer => CertificateError::Issuer,
        Unfit::Unreadable | Unfit::TooLarge(_) | Unfit::Authority | Unfit::Names(_) | Unfit::KeyType | Unfit::Usage => {
            CertificateError::Unfit(unfit)
        }
    })?;
    Ok((holder, own))
}

/// A key and its certificate.
pub struct Identity {
    pub key: std::sync::Arc<SigningKey>,
    pub certified: Certified,
}

#[cfg(test)]
mod tests {
    use rcgen::PublicKeyData;

    use super::*;

    #[test]
    fn a_key_comes_back_from_its_bytes_and_signs_requests() {
        let key = SigningKey::generate().unwrap();
        let back = SigningKey::from_pkcs8(key.expose_pkcs8()).unwrap();
        let request = back.signing_request().unwrap();
        let parsed = rcgen::CertificateSigningRequestParams::from_pem(&request).unwrap();
        assert_eq!(parsed.public_key.der_bytes().len(), 32, "an Ed25519 public key");
        assert_eq!(parsed.public_key.der_bytes(), key.signer().unwrap().identity().0, "one key for both");
        assert_ne!(key.expose_pkcs8(), SigningKey::generate().unwrap().expose_pkcs8());
    }

    #[test]
    fn bytes_that_are_no_key_are_refused() {
        let key = SigningKey::generate().unwrap();
        let bytes = key.expose_pkcs8();
        assert!(SigningKey::from_pkcs8(&bytes[..bytes.len() - 1]).is_err());
        assert!(SigningKey::from_pkcs8(b"").is_err());
    }
}
