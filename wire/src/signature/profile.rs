//! Required parts of every signed request.

use std::time::Duration;

use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, IF_NONE_MATCH, IF_RANGE, RANGE};

use super::content_digest::CONTENT_DIGEST;
use crate::headers::CERTIFICATE;

/// Maximum time from `created` to `expires`, and maximum lead of `created` over the coordinator's clock.
pub const WINDOW: Duration = Duration::from_secs(60);
/// Label of the signature within its two headers; signatures with other labels are ignored.
pub const LABEL: &str = "tributary";
/// The header with the covered components and the parameters.
pub const SIGNATURE_INPUT: &str = "signature-input";
/// The header with the signature.
pub const SIGNATURE: &str = "signature";
/// Components that every signature covers, in this order, before headers.
pub const DERIVED: [&str; 4] = ["@method", "@authority", "@path", "@query"];

/// The name that a request is signed for, of a server's host with or without its port: in lower case, without the port of HTTPS
/// (RFC 9421 §2.2.3).
#[must_use]
pub fn server_name(authority: &str) -> String {
    let name = authority.to_ascii_lowercase();
    name.strip_suffix(":443").map(str::to_owned).unwrap_or(name)
}

/// Whether a signature must cover this header if the request has it: every header that the coordinator reads from a participant's request.
/// `keyid` covers the certificate.
#[must_use]
pub fn is_covered(header: &str) -> bool {
    let others = [CONTENT_TYPE, RANGE, IF_RANGE, IF_NONE_MATCH, AUTHORIZATION];
    (header.starts_with("tributary-") && header != CERTIFICATE)
        || header == CONTENT_DIGEST
        || others.iter().any(|name| name == header)
}

/// Whether a request carries a signature, valid or not.
#[must_use]
pub fn is_signed(headers: &HeaderMap) -> bool {
    headers.contains_key(SIGNATURE_INPUT) || headers.contains_key(SIGNATURE) || headers.contains_key(CERTIFICATE)
}
