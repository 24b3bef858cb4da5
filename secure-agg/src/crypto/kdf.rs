//! HKDF-SHA-256 (RFC 5869) and every key the protocol derives with it (specification §3, "Derivations").
//!
//! `seed` and `shared` never appear in a derived key's label; `sid` is the salt of everything that belongs to a session, so
//! participants who were shown different models, rosters or configurations derive unrelated keys.

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
/// When `N` exceeds 255·32 bytes, which RFC 5869 forbids.
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

/// The X25519 scalar of the mask key: a function of the seed that is secret-shared.
pub(crate) fn mask_scalar(seed_s: &Seed) -> Secret<[u8; 32]> {
    hkdf(&[], seed_s.expose(), &[PROTOCOL, b"/x25519-mask\0"])
}

/// `K_uv`: the mask that `a` and `b` share. Symmetric in the two.
pub(crate) fn pair_mask(sid: &Digest, shared: &Secret<[u8; 32]>, a: Index, b: Index) -> MaskSeed {
    let (low, high) = (u32::from(a.min(b)), u32::from(a.max(b)));
    let info: [&[u8]; 4] = [PROTOCOL, b"/pair-mask\0", &low.to_be_bytes(), &high.to_be_bytes()];
    into_mask_seed(&hkdf(sid, shared.expose(), &info))
}

/// `K_u`: the mask that `u` puts on its own input.
pub(crate) fn self_mask(sid: &Digest, seed_b: &Seed, u: Index) -> MaskSeed {
    let info: [&[u8]; 3] = [PROTOCOL, b"/self-mask\0", &u32::from(u).to_be_bytes()];
    into_mask_seed(&hkdf(sid, seed_b.expose(), &info))
}

/// `E_u→v`: seals the shares that `dealer` sends to `holder`. Directional, used once.
pub(crate) fn share_key(sid: &Digest, shared: &Secret<[u8; 32]>, dealer: Index, holder: Index) -> Secret<[u8; 32]> {
    let (dealer, holder) = (u32::from(dealer).to_be_bytes(), u32::from(holder).to_be_bytes());
    hkdf(sid, shared.expose(), &[PROTOCOL, b"/share-enc\0", &dealer, &holder])
}

/// `b_commit`: binds a participant to its self-mask seed, so that a wrong reconstruction is noticed.
pub(crate) fn self_mask_commitment(client_id: &[u8], seed_b: &Seed) -> Digest {
    Transcript::bare().raw(PROTOCOL).raw(b"/b-commit\0").enc(client_id).raw(seed_b.expose()).finish()
}

fn into_mask_seed(key: &Secret<[u8; 32]>) -> MaskSeed {
    let mut bytes = *key.expose();
    MaskSeed::new(&mut bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unhex(text: &str) -> Vec<u8> {
        hex::decode(text).unwrap()
    }

    #[test]
    fn rfc_5869_a_1() {
        let ikm = [0x0b; 22];
        let okm: Secret<[u8; 42]> = hkdf(&unhex("000102030405060708090a0b0c"), &ikm, &[&unhex("f0f1f2f3f4f5f6f7f8f9")]);
        let expected = "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865";
        assert_eq!(hex::encode(okm.expose()), expected);
    }

    #[test]
    fn rfc_5869_a_2_with_its_info_in_two_parts() {
        let ikm: Vec<u8> = (0x00..=0x4f).collect();
        let salt: Vec<u8> = (0x60..=0xaf).collect();
        let info: Vec<u8> = (0xb0..=0xff).collect();
        let okm: Secret<[u8; 82]> = hkdf(&salt, &ikm, &[&info[..17], &info[17..]]);
        let expected = "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c59045a99cac7827271cb41c65e590e09\
                        da3275600c2f09b8367793a9aca3db71cc30c58179ec3e87c14c01d5c1f3434f1d87";
        assert_eq!(hex::encode(okm.expose()), expected);
    }

    #[test]
    fn rfc_5869_a_3_no_salt_is_a_salt_of_zeros() {
        let ikm = [0x0b; 22];
        let okm: Secret<[u8; 42]> = hkdf(&[], &ikm, &[]);
        let expected = "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8";
        assert_eq!(hex::encode(okm.expose()), expected);
        let zeros: Secret<[u8; 42]> = hkdf(&[0; 32], &ikm, &[]);
        assert_eq!(hex::encode(zeros.expose()), expected);
        let other: Secret<[u8; 42]> = hkdf(&[1; 32], &ikm, &[]);
        assert_ne!(hex::encode(other.expose()), expected);
    }
}
