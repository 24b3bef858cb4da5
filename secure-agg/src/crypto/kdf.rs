//! HKDF-SHA-256 (RFC 5869) and every key the protocol derives with it (specification §3, "Derivations").
//!
//! `seed` and `shared` never appear in a derived key's label; `sid` is the salt of everything that belongs to a session, so participants
//! with different models, rosters or configurations derive unrelated keys.

use ring::hkdf::{HKDF_SHA256, KeyType, Salt};

use super::shamir::Seed;
use super::suite::PROTOCOL;
use super::transcript::{Digest, Transcript};
use crate::mask::MaskSeed;
use crate::participants::Index;
use crate::secret::Secret;

/// HKDF with SHA-256: extract with `salt`, expand to `N` bytes under the concatenation of `info`.
///
/// # Panics
/// If `N` exceeds 255·32 bytes, which RFC 5869 forbids.
pub(crate) fn hkdf<const N: usize>(salt: &[u8], ikm: &[u8], info: &[&[u8]]) -> Secret<[u8; N]> {
    struct Length(usize);
    impl KeyType for Length {
        fn len(&self) -> usize {
            self.0
        }
    }
    let mut key = [0; N];
    Salt::new(HKDF_SHA256, salt)
        .extract(ikm)
        .expand(info, Length(N))
        .and_then(|okm| okm.fill(&mut key))
        .expect("HKDF-SHA-256 yields up to 8160 bytes");
    Secret::take(&mut key)
}

/// The X25519 scalar of the mask key, derived from the secret-shared seed.
pub(crate) fn mask_scalar(seed_s: &Seed) -> Secret<[u8; 32]> {
    hkdf(&[], seed_s.expose(), &[PROTOCOL, b"/x25519-mask\0"])
}

/// `K_uv`: the shared mask of `a` and `b`. Symmetric in the two.
pub(crate) fn pair_mask(sid: &Digest, shared: &Secret<[u8; 32]>, a: Index, b: Index) -> MaskSeed {
    let (low, high) = (u32::from(a.min(b)), u32::from(a.max(b)));
    let info: [&[u8]; 4] = [PROTOCOL, b"/pair-mask\0", &low.to_be_bytes(), &high.to_be_bytes()];
    into_mask_seed(&hkdf(sid, shared.expose(), &info))
}

/// `K_u`: the mask of `u` on its own input.
pub(crate) fn self_mask(sid: &Digest, seed_b: &Seed, u: Index) -> MaskSeed {
    let info: [&[u8]; 3] = [PROTOCOL, b"/self-mask\0", &u32::from(u).to_be_bytes()];
    into_mask_seed(&hkdf(sid, seed_b.expose(), &info))
}

/// `E_u→v`: seals the shares from `dealer` to `holder`. Directional, used once.
pub(crate) fn share_key(sid: &Digest, shared: &Secret<[u8; 32]>, dealer: Index, holder: Index) -> Secret<[u8; 32]> {
    let (dealer, holder) = (u32::from(dealer).to_be_bytes(), u32::from(holder).to_be_bytes());
    hkdf(sid, shared.expose(), &[PROTOCOL, b"/share-enc\0", &dealer, &holder])
}

/// `b_commit`: binds a participant to its self-mask seed, so that a wrong reconstruction is detected.
pub(crate) fn self_mask_commitment(client_id: &[u8], seed_b: &Seed) -> Digest {
    Transcript::bare().raw(PROTOCOL).raw(b"/b-commit\0").enc(client_id).raw(seed_b.expose()).finish()
}

fn into_mask_seed(key: &Secret<[u8; 32]>) -> MaskSeed {
    let mut bytes = *key.expose();
    MaskSeed::new(&mut bytes)
}
