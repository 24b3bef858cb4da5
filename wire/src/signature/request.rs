//! Verifying requests.

use federation::id::Digest;
use federation::time::Timestamp;
use http::header::HeaderMap;
use http::request::Parts;
use ring::signature::{ED25519, UnparsedPublicKey};
use secure_agg::IdentityKey;

use super::base::{signature_base, value};
use super::content_digest::{CONTENT_DIGEST, read_content_digest, sha256};
use super::error::SignatureError;
use super::input::{SignatureInput, byte_sequence, member};
use super::profile::{DERIVED, SIGNATURE, SIGNATURE_INPUT, is_covered};
use crate::headers::{CERTIFICATE, TIME};

/// Maximum header length: base64 of the largest certificate that sessions carry, with a margin.
const MAX_HEADER_BYTES: usize = 16 << 10;

/// A request's signature and its claims, untrusted until [`SignedRequest::verify`] succeeds.
#[derive(Clone, Debug)]
pub struct SignedRequest {
    /// The sender's certificate (DER); its chain and dates are unchecked.
    pub certificate: Vec<u8>,
    /// When it was signed; whole seconds.
    pub created: Timestamp,
    /// End of validity; whole seconds.
    pub expires: Timestamp,
    /// Must be fresh for this signer.
    pub nonce: String,
    /// SHA-256 of the body; `None` for a request without one.
    pub content_digest: Option<Digest>,
    /// The coordinator's time that the sender used ([`TIME`]) instead of its own clock, if any.
    pub time: Option<String>,
    base: String,
    signature: [u8; 64],
}

impl SignedRequest {
    /// Reads a request that arrived for `server` (host and port, as [`signature_base`] has it).
    ///
    /// # Errors
    /// [`SignatureError`]: a part is missing, cannot be read, or is not covered.
    pub fn read(parts: &Parts, server: &str) -> Result<Self, SignatureError> {
        let headers = &parts.headers;
        let certificate =
            byte_sequence(&single(headers, CERTIFICATE)?).ok_or(SignatureError::Malformed(CERTIFICATE))?;
        let input = SignatureInput::parse(&single(headers, SIGNATURE_INPUT)?)?;
        let signature = member(&single(headers, SIGNATURE)?).ok_or(SignatureError::Malformed(SIGNATURE))?;
        let signature = signature.try_into().map_err(|_| SignatureError::Malformed(SIGNATURE))?;
        if input.keyid != sha256(&certificate) {
            return Err(SignatureError::KeyId);
        }
        let names = headers.keys().map(|name| name.as_str()).filter(|name| is_covered(name));
        if let Some(open) = DERIVED.into_iter().chain(names).find(|name| !input.covers(name)) {
            return Err(SignatureError::NotCovered(open.to_owned()));
        }
        let content_digest = value(headers, CONTENT_DIGEST)?.map(|text| read_content_digest(&text)).transpose()?;
        let base = signature_base(parts, server, &input.components, &input.parameters)?;
        let SignatureInput { created, expires, nonce, .. } = input;
        let time = value(headers, TIME)?;
        Ok(Self { certificate, created, expires, nonce, content_digest, time, base, signature })
    }

    /// Whether `key` signed it.
    ///
    /// # Errors
    /// [`SignatureError::Forged`].
    pub fn verify(&self, key: &IdentityKey) -> Result<(), SignatureError> {
        let key = UnparsedPublicKey::new(&ED25519, key.0);
        key.verify(self.base.as_bytes(), &self.signature).map_err(|_| SignatureError::Forged)
    }
}

/// The header's only value.
fn single(headers: &HeaderMap, name: &'static str) -> Result<String, SignatureError> {
    let text = value(headers, name)?.ok_or(SignatureError::Missing(name))?;
    if text.len() > MAX_HEADER_BYTES { Err(SignatureError::Malformed(name)) } else { Ok(text) }
}
