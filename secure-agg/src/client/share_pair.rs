//! A holder's two shares of a dealer, and their ciphertext.

use crate::crypto::aead::{self, PLAIN_BYTES};
use crate::crypto::shamir::{SHARE_BYTES, Share};
use crate::messages::{SealedShares, Sid};
use crate::participants::Index;
use crate::secret::Secret;

/// Both shares of one dealer. Only one of them will ever be revealed.
pub(super) struct SharePair {
    pub(super) s: Share,
    pub(super) b: Share,
}

impl SharePair {
    pub(super) fn parse(plain: &Secret<[u8; PLAIN_BYTES]>) -> Option<Self> {
        let (halves, _) = plain.expose().as_chunks::<SHARE_BYTES>();
        match halves {
            [s, b] => Some(Self { s: Share::from_bytes(s)?, b: Share::from_bytes(b)? }),
            _ => None,
        }
    }
}

/// Decrypts the two shares; `None` if the ciphertext does not open to two canonical shares.
pub(super) fn open(
    sid: &Sid,
    key: &Secret<[u8; 32]>,
    dealer: Index,
    holder: Index,
    sealed: &SealedShares,
) -> Option<SharePair> {
    let plain = aead::open(key, &aead::associated_data(sid, dealer, holder), sealed).ok()?;
    SharePair::parse(&plain)
}

/// Whether a ciphertext opens to two shares: how the coordinator checks a complaint.
pub(crate) fn opens(sid: &Sid, key: &Secret<[u8; 32]>, dealer: Index, holder: Index, sealed: &SealedShares) -> bool {
    open(sid, key, dealer, holder, sealed).is_some()
}
