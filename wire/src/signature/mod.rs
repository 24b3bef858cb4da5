//! Signed requests: HTTP Message Signatures (RFC 9421) by the key of the participant's certificate, for coordinators whose
//! balancer ends TLS.
//!
//! The signature covers method, host, path and query, every header that the coordinator reads ([`is_covered`]), and through
//! `Content-Digest` (RFC 9530) the body. Its parameters are `created`, `expires`, `nonce`, `keyid` (SHA-256 of the certificate,
//! hexadecimal) and, if the signer likes, `alg`. Everything here is a function of its arguments.
//!
//! The same key signs TLS handshakes and messages of secure aggregation. Those begin with 64 spaces (RFC 8446 §4.4.3) and with
//! the protocol's own context; a signature base begins with a quotation mark. So none is ever taken for another.

mod base;
mod content_digest;
mod input;
mod key;

use std::time::Duration;

use federation::id::Digest;
use federation::time::Timestamp;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, IF_NONE_MATCH, IF_RANGE, RANGE};
use http::request::Parts;
use ring::signature::{ED25519, UnparsedPublicKey};
use secure_agg::IdentityKey;

use crate::headers::{CERTIFICATE, TIME};

pub use base::signature_base;
pub use content_digest::{CONTENT_DIGEST, content_digest};
pub use input::SignatureInput;
pub use key::{BadKey, RequestKey};

use base::value;
use content_digest::read_content_digest;
use input::{byte_sequence, member};

/// Longest time from `created` to `expires`, and most that `created` may be ahead of the coordinator's clock.
pub const WINDOW: Duration = Duration::from_secs(60);
/// Names the signature within its two headers; others' signatures beside it are ignored.
pub const LABEL: &str = "tributary";
/// The header with what is signed, and with which parameters.
pub const SIGNATURE_INPUT: &str = "signature-input";
/// The header with the signature.
pub const SIGNATURE: &str = "signature";
/// What every signature covers, in this order before headers.
pub const DERIVED: [&str; 4] = ["@method", "@authority", "@path", "@query"];

/// A certificate in the header is no longer than one that sessions carry; this is its base64 with room to spare.
const MAX_HEADER_BYTES: usize = 16 << 10;

/// Reasons a signature is not accepted, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// A header or parameter that every signed request has.
    #[error("the signed request has no {0}")]
    Missing(&'static str),
    /// It is not written as its RFC says.
    #[error("{0} cannot be read: it must be a structured field (RFC 9651) in the form of docs/PROTOCOL.md")]
    Malformed(&'static str),
    /// Something that the coordinator reads could have been changed on the way.
    #[error("the signature does not cover {0}")]
    NotCovered(String),
    /// The request has no such part, or it is named twice.
    #[error("the signature covers {0:?}, which the request does not have, has twice, or which is not known here")]
    Component(String),
    /// `keyid` names another certificate.
    #[error("keyid is not the SHA-256 of the certificate in {CERTIFICATE}")]
    KeyId,
    /// The certificate's key did not sign this.
    #[error(
        "the signature is not of the certificate's key over this request: something of it was changed on the way, or another key signed it"
    )]
    Forged,
}

/// Whether a signature must cover this header wherever a request has it: all that the coordinator reads of a participant's
/// request. The certificate is covered by `keyid`.
#[must_use]
pub fn is_covered(header: &str) -> bool {
    let others = [CONTENT_TYPE, RANGE, IF_RANGE, IF_NONE_MATCH, AUTHORIZATION];
    (header.starts_with("tributary-") && header != CERTIFICATE)
        || header == CONTENT_DIGEST
        || others.iter().any(|name| name == header)
}

/// Whether a request carries a signature, of whatever worth.
#[must_use]
pub fn is_signed(headers: &HeaderMap) -> bool {
    headers.contains_key(SIGNATURE_INPUT) || headers.contains_key(SIGNATURE) || headers.contains_key(CERTIFICATE)
}

/// What a request says of its signature. Nothing of it is true before [`SignedRequest::verify`].
#[derive(Clone, Debug)]
pub struct SignedRequest {
    /// The sender's certificate (DER); neither its chain nor its dates were looked at.
    pub certificate: Vec<u8>,
    /// When it was signed; whole seconds.
    pub created: Timestamp,
    /// When it stops to count; whole seconds.
    pub expires: Timestamp,
    /// Not used before by this signer.
    pub nonce: String,
    /// SHA-256 of the body; `None` for a request without one.
    pub content_digest: Option<Digest>,
    /// The coordinator's time that the sender dated it by ([`TIME`]), if not by its own clock.
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

fn sha256(bytes: &[u8]) -> Digest {
    let mut digest = [0; 32];
    digest.copy_from_slice(ring::digest::digest(&ring::digest::SHA256, bytes).as_ref());
    Digest(digest)
}

#[cfg(test)]
mod tests;
