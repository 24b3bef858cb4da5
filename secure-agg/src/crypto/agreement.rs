//! X25519 (RFC 7748) with static keys, since a mask key must be secret-shared and `ring` cannot export one.
//!
//! Public keys are held to one encoding each (top bit clear, below 2^255 - 19), so "no key appears twice" compares bytes,
//! and points of small order are refused: a shared secret of zeros would be known to everybody.

use thiserror::Error;
use x25519_dalek::{PublicKey as Point, StaticSecret};

use super::kdf;
use super::shamir::Seed;
use crate::secret::Secret;

/// An X25519 public key in the messages.
pub type PublicKey = [u8; 32];

/// Why a public key is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum BadPublicKey {
    /// The top bit is set or the number is not below 2^255 - 19.
    #[error("the public key is not in its one canonical encoding")]
    NotCanonical,
    /// Every agreement with this key yields zeros.
    #[error("the public key has small order: it would agree on a secret that everybody knows")]
    SmallOrder,
}

/// A private key. Erased when dropped.
pub(crate) struct AgreementKey(StaticSecret);

impl AgreementKey {
    pub(crate) fn new(scalar: &Secret<[u8; 32]>) -> Self {
        Self(StaticSecret::from(*scalar.expose()))
    }

    /// The mask key of a seed.
    pub(crate) fn from_seed(seed_s: &Seed) -> Self {
        Self::new(&kdf::mask_scalar(seed_s))
    }

    pub(crate) fn random(rng: &mut dyn crate::CryptoRng) -> Self {
        Self::new(&Secret::random(rng))
    }

    pub(crate) fn public(&self) -> PublicKey {
        Point::from(&self.0).to_bytes()
    }

    /// The private scalar, for a snapshot.
    pub(crate) fn scalar(&self) -> &[u8; 32] {
        self.0.as_bytes()
    }

    /// The shared secret with `peer`.
    pub(crate) fn agree(&self, peer: &PublicKey) -> Result<Secret<[u8; 32]>, BadPublicKey> {
        check_encoding(peer)?;
        let shared = self.0.diffie_hellman(&Point::from(*peer));
        if shared.was_contributory() { Ok(Secret::new(shared.to_bytes())) } else { Err(BadPublicKey::SmallOrder) }
    }
}

/// Whether a key may stand in a roster: canonical, and not one of the five points of small order (RFC 7748 §6.1). Cheaper
/// than an agreement, which checks again.
pub(crate) fn check(key: &PublicKey) -> Result<(), BadPublicKey> {
    check_encoding(key)?;
    if SMALL_ORDER.contains(key) { Err(BadPublicKey::SmallOrder) } else { Ok(()) }
}

/// The u-coordinates of order 1, 2, 4 and 8 on the curve and its twist, in canonical form.
const SMALL_ORDER: [PublicKey; 5] = [
    [0; 32],
    {
        let mut one = [0; 32];
        one[0] = 1;
        one
    },
    [
        0xe0, 0xeb, 0x7a, 0x7c, 0x3b, 0x41, 0xb8, 0xae, 0x16, 0x56, 0xe3, 0xfa, 0xf1, 0x9f, 0xc4, 0x6a, 0xda, 0x09,
        0x8d, 0xeb, 0x9c, 0x32, 0xb1, 0xfd, 0x86, 0x62, 0x05, 0x16, 0x5f, 0x49, 0xb8, 0x00,
    ],
    [
        0x5f, 0x9c, 0x95, 0xbc, 0xa3, 0x50, 0x8c, 0x24, 0xb1, 0xd0, 0xb1, 0x55, 0x9c, 0x83, 0xef, 0x5b, 0x04, 0x44,
        0x5c, 0xc4, 0x58, 0x1c, 0x8e, 0x86, 0xd8, 0x22, 0x4e, 0xdd, 0xd0, 0x9f, 0x11, 0x57,
    ],
    {
        let mut minus_one = [0xff; 32];
        minus_one[0] = 0xec;
        minus_one[31] = 0x7f;
        minus_one
    },
];

fn check_encoding(key: &PublicKey) -> Result<(), BadPublicKey> {
    const PRIME: PublicKey = {
        let mut prime = [0xff; 32];
        prime[0] = 0xed;
        prime[31] = 0x7f;
        prime
    };
    if key.iter().rev().lt(PRIME.iter().rev()) { Ok(()) } else { Err(BadPublicKey::NotCanonical) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unhex(text: &str) -> [u8; 32] {
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn rfc_7748_5_2() {
        for (scalar, point, expected) in [
            (
                "a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4",
                "e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c",
                "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552",
            ),
            (
                "4b66e9d4d1b4673c5ad22691957d6af5c11b6421e0ea01d42ca4169e7918ba0d",
                // The RFC's point has its top bit set and asks to ignore it; here a key has one encoding.
                "e5210f12786811d3f4b7959d0538ae2c31dbe7106fc03c3efc4cd549c715a413",
                "95cbde9476e8907d7aade45cb4b873f88b595a68799fa152e6f8f7647aac7957",
            ),
        ] {
            let key = AgreementKey::new(&Secret::new(unhex(scalar)));
            assert_eq!(hex::encode(key.agree(&unhex(point)).unwrap().expose()), expected);
        }
        let top_bit = unhex("e5210f12786811d3f4b7959d0538ae2c31dbe7106fc03c3efc4cd549c715a493");
        assert_eq!(check(&top_bit), Err(BadPublicKey::NotCanonical));
    }

    #[test]
    fn rfc_7748_5_2_iterated() {
        let mut nine = [0; 32];
        nine[0] = 9;
        let (mut k, mut u) = (nine, nine);
        for round in 1..=1000 {
            let mut point = u;
            point[31] &= 0x7f;
            let next = *AgreementKey::new(&Secret::new(k)).agree(&point).unwrap().expose();
            (k, u) = (next, k);
            if round == 1 {
                assert_eq!(hex::encode(k), "422c8e7a6227d7bca1350b3e2bb7279f7897b87bb6854b783c60e80311ae3079");
            }
        }
        assert_eq!(hex::encode(k), "684cf59ba83309552800ef566f2f4d3c1c3887c49360e3875f2eb94d99532c51");
    }

    #[test]
    fn rfc_7748_6_1() {
        let private = |text| AgreementKey::new(&Secret::new(unhex(text)));
        let alice = private("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a");
        let bob = private("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb");
        assert_eq!(hex::encode(alice.public()), "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a");
        assert_eq!(hex::encode(bob.public()), "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f");
        let shared = "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742";
        assert_eq!(hex::encode(alice.agree(&bob.public()).unwrap().expose()), shared);
        assert_eq!(hex::encode(bob.agree(&alice.public()).unwrap().expose()), shared);
    }

    #[test]
    fn points_of_small_order_are_refused() {
        for point in [
            "0000000000000000000000000000000000000000000000000000000000000000",
            "0100000000000000000000000000000000000000000000000000000000000000",
            "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
            "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
            "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        ] {
            let (point, key) = (unhex(point), AgreementKey::new(&Secret::new([7; 32])));
            assert_eq!(check(&point), Err(BadPublicKey::SmallOrder), "{point:?}");
            assert_eq!(key.agree(&point).map(|_| ()), Err(BadPublicKey::SmallOrder), "{point:?}");
        }
        for point in [
            "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
            "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
            "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
        ] {
            assert_eq!(check(&unhex(point)), Err(BadPublicKey::NotCanonical), "{point}");
        }
    }
}
