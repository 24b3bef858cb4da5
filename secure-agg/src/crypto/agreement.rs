//! X25519 (RFC 7748) with static keys, since a mask key must be secret-shared and `ring` cannot export one.
//!
//! Public keys must be in canonical encoding (top bit clear, below 2^255 - 19), so comparing bytes detects repeated keys, and points of
//! small order are rejected: their shared secret is the public value zero.

use thiserror::Error;
use x25519_dalek::{PublicKey as Point, StaticSecret};

use super::kdf;
use super::shamir::Seed;
use crate::secret::Secret;

/// An X25519 public key in the messages.
pub type PublicKey = [u8; 32];

/// Reasons a public key is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum BadPublicKey {
    /// The top bit is set or the number is not below 2^255 - 19.
    #[error("the public key is not in its one canonical encoding")]
    NotCanonical,
    /// Every agreement with this key yields zeros.
    #[error("the public key has small order: it would agree on a secret that everybody knows")]
    SmallOrder,
    /// Another key of the same participant equals this one.
    #[error("the public key is also used for something else: all keys of a participant must differ")]
    Repeated,
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

/// Checks that a key may appear in a roster: canonical, and not one of the five points of small order (RFC 7748 §6.1). Cheaper than an
/// agreement; agreements check again.
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
