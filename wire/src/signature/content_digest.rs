//! `Content-Digest` (RFC 9530) with SHA-256.

use federation::id::Digest;
use sfv::{BareItem, Dictionary, ListEntry, Parser};

use super::error::SignatureError;

/// The header with a body's digest.
pub const CONTENT_DIGEST: &str = "content-digest";
const ALGORITHM: &str = "sha-256";

/// The header's value for a body with this SHA-256.
#[must_use]
pub fn content_digest(sha256: Digest) -> String {
    format!("{ALGORITHM}=:{}:", crate::base64::encode(&sha256.0))
}

/// Reads the SHA-256 from a header's value; ignores other algorithms.
pub(super) fn read_content_digest(text: &str) -> Result<Digest, SignatureError> {
    let bytes = Parser::new(text).parse::<Dictionary>().ok().and_then(|mut digests| {
        let entry = digests.swap_remove(ALGORITHM)?;
        let ListEntry::Item(item) = entry else { return None };
        let BareItem::ByteSequence(bytes) = item.bare_item else { return None };
        bytes.try_into().ok()
    });
    bytes.map(Digest).ok_or(SignatureError::Malformed(CONTENT_DIGEST))
}

pub(super) fn sha256(bytes: &[u8]) -> Digest {
    let mut digest = [0; 32];
    digest.copy_from_slice(ring::digest::digest(&ring::digest::SHA256, bytes).as_ref());
    Digest(digest)
}
