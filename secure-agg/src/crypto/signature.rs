//! Ed25519 (RFC 8032) signatures. The caller provides the signing key and decides which certificates to trust.

use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use thiserror::Error;

/// A detached Ed25519 signature.
pub type Signature = [u8; 64];

/// An Ed25519 public key bound to a participant by a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct IdentityKey(pub [u8; 32]);

impl IdentityKey {
    /// Whether `signature` is this identity's signature over `text`.
    #[must_use]
    pub fn verifies(&self, text: &[u8], signature: &Signature) -> bool {
        UnparsedPublicKey::new(&ED25519, &self.0).verify(text, signature).is_ok()
    }
}

/// Decides whether a certificate binds a key to a client id. The caller checks chain, expiry and revocation.
pub trait IdentityVerifier {
    /// The Ed25519 key that `certificate` binds to `client_id`.
    ///
    /// # Errors
    /// [`IdentityRefused`] if the certificate is not currently valid for this client.
    fn verify(&self, client_id: &[u8], certificate: &[u8]) -> Result<IdentityKey, IdentityRefused>;
}

/// The certificate does not speak for this client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the certificate does not bind a key to this client id")]
pub struct IdentityRefused;

/// Signs for one participant. The key may stay inside a keystore.
pub trait Signer {
    fn identity(&self) -> IdentityKey;

    /// The signature over `text`.
    ///
    /// # Errors
    /// [`SignerFault`] if the keystore cannot sign now; the calling state is lost, but its last snapshot is not.
    fn sign(&self, text: &[u8]) -> Result<Signature, SignerFault>;
}

/// The signer could not sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the signing key could not be used")]
pub struct SignerFault;

/// A [`Signer`] with its key in memory.
pub struct MemorySigner(Ed25519KeyPair);

impl MemorySigner {
    /// From the 32-byte private key of RFC 8032 §5.1.5.
    ///
    /// # Errors
    /// [`SignerFault`] if `seed` is not 32 bytes long.
    pub fn from_seed(seed: &[u8]) -> Result<Self, SignerFault> {
        Ed25519KeyPair::from_seed_unchecked(seed).map(Self).map_err(|_| SignerFault)
    }

    /// From a PKCS#8 document (RFC 8410), version 1 or 2.
    ///
    /// # Errors
    /// [`SignerFault`] if the document holds no Ed25519 key.
    pub fn from_pkcs8(document: &[u8]) -> Result<Self, SignerFault> {
        Ed25519KeyPair::from_pkcs8_maybe_unchecked(document).map(Self).map_err(|_| SignerFault)
    }
}

impl Signer for MemorySigner {
    fn identity(&self) -> IdentityKey {
        let mut key = [0; 32];
        key.copy_from_slice(self.0.public_key().as_ref());
        IdentityKey(key)
    }

    fn sign(&self, text: &[u8]) -> Result<Signature, SignerFault> {
        self.0.sign(text).as_ref().try_into().map_err(|_| SignerFault)
    }
}
