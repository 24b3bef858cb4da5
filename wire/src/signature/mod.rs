//! Signed requests: HTTP Message Signatures (RFC 9421) by the key of the participant's certificate, for coordinators whose balancer ends
//! TLS.
//!
//! The signature covers method, host, path and query, every header read by the coordinator ([`is_covered`]), and the body through
//! `Content-Digest` (RFC 9530). Its parameters are `created`, `expires`, `nonce`, `keyid` (SHA-256 of the certificate, hexadecimal)
//! andoptionally `alg`. Everything here is a function of its arguments.
//!
//! The same key signs TLS handshakes and messages of secure aggregation. Those begin with 64 spaces (RFC 8446 §4.4.3) and with the
//! protocol's own context; a signature base begins with a quotation mark. So a signature for one use is invalid for the others.

mod base;
mod content_digest;
mod error;
mod input;
mod key;
mod profile;
mod request;

pub use base::signature_base;
pub use content_digest::{CONTENT_DIGEST, content_digest};
pub use error::SignatureError;
pub use input::SignatureInput;
pub use key::{BadKey, RequestKey};
pub use profile::{DERIVED, LABEL, SIGNATURE, SIGNATURE_INPUT, WINDOW, is_covered, is_signed, server_name};
pub use request::SignedRequest;

#[cfg(test)]
mod tests;
