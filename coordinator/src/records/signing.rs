//! The key for externally verifiable signatures: of the audit log, and of the provenance of model versions.

use ring::hkdf::{HKDF_SHA256, Prk};
use ring::signature::Ed25519KeyPair;
use zeroize::Zeroizing;

/// The key pair derived from this sealing key; the same for all coordinators with this sealing key.
#[expect(clippy::expect_used, reason = "32 bytes are asked for, and 32 bytes are a seed")]
pub(crate) fn pair(key: &[u8; 32]) -> Ed25519KeyPair {
    let mut seed = Zeroizing::new([0; 32]);
    let prk = Prk::new_less_safe(HKDF_SHA256, key);
    prk.expand(&[&b"tributary/seal/audit/1"[..]], HKDF_SHA256)
        .and_then(|seeds| seeds.fill(&mut *seed))
        .expect("32 bytes");
    Ed25519KeyPair::from_seed_unchecked(&*seed).expect("a seed of 32 bytes")
}
