//! Signature errors.

use crate::headers::CERTIFICATE;

/// Reasons a signature is not accepted, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// A header or parameter required on every signed request is missing.
    #[error("the signed request has no {0}")]
    Missing(&'static str),
    /// A value violates its RFC.
    #[error("{0} cannot be read: it must be a structured field (RFC 9651) in the form of docs/PROTOCOL.md")]
    Malformed(&'static str),
    /// The signature does not cover a part that the coordinator reads.
    #[error("the signature does not cover {0}")]
    NotCovered(String),
    /// The request lacks this component, or the signature names it twice.
    #[error("the signature covers {0:?}, which the request does not have, has twice, or which is not known here")]
    Component(String),
    /// `keyid` names another certificate.
    #[error("keyid is not the SHA-256 of the certificate in {CERTIFICATE}")]
    KeyId,
    /// The certificate's key did not sign this request.
    #[error(
        "the signature is not of the certificate's key over this request: something of it was changed on the way, or another key signed it"
    )]
    Forged,
}
