//! Digests of certificates.

use federation::id::Digest;
use ring::digest::{SHA256, digest};

/// SHA-256.
pub(crate) fn sha256(bytes: &[u8]) -> Digest {
    let mut sha256 = [0; 32];
    sha256.copy_from_slice(digest(&SHA256, bytes).as_ref());
    Digest(sha256)
}
