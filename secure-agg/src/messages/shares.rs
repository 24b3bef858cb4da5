//! R1 and R2: shares from a dealer to the holders, and complaints about shares that do not open.

use tls_codec::{TlsDeserializeBytes, TlsSerialize, TlsSize, TlsVecU32};

use super::session::{COHORT, FRAME_BYTES, SET_BYTES, SealedShares, Sid};
use super::signed::{Body, InSession, Signed, in_session};
use crate::codec::{DecodeError, Message, bound};
use crate::crypto::aead::SEALED_BYTES;
use crate::participants::{Index, IndexSet};

/// R1: one dealer's shares for every other participant, and the mask neighbours it drew.
pub type ShareKeys = Signed<ShareKeysBody>;

/// The signed part of a [`ShareKeys`].
#[derive(Debug, Clone, PartialEq, Eq, TlsSize, TlsSerialize, TlsDeserializeBytes)]
pub struct ShareKeysBody {
    pub sid: Sid,
    pub sender: Index,
    /// One for every other participant, ascending by position: share of the mask seed, then of the self-mask seed.
    pub sealed: TlsVecU32<SealedShares>,
    pub out: IndexSet,
}

impl ShareKeysBody {
    /// The ciphertext for `holder`.
    #[must_use]
    pub fn sealed_for(&self, holder: Index) -> Option<&SealedShares> {
        if holder == self.sender || holder == 0 {
            return None;
        }
        self.sealed.get(usize::from(holder - 1 - u16::from(holder > self.sender)))
    }
}

impl Body for ShareKeysBody {
    const PHASE: &'static str = "share";
    const KIND: u8 = 3;
    const MAX_BYTES: usize = FRAME_BYTES + 4 + (COHORT - 1) * SEALED_BYTES + SET_BYTES;

    fn check(&self) -> Result<(), DecodeError> {
        bound(self.sealed.len() < COHORT, "sealed")
    }

    fn binding(&self) -> Vec<u8> {
        self.sid.to_vec()
    }
}
in_session!(ShareKeysBody);

/// R2, to one participant: the dealers, their shares for it, and those that drew it as a mask neighbour.
#[derive(Debug, Clone, PartialEq, Eq, TlsSize, TlsSerialize, TlsDeserializeBytes)]
pub struct Delivery {
    pub sid: Sid,
    pub recipient: Index,
    /// U2: the participants whose shares arrived.
    pub dealers: IndexSet,
    /// The members of U2 with an out list that names the recipient.
    pub incoming: IndexSet,
    /// One per other member of U2, ascending by position.
    pub sealed: TlsVecU32<SealedShares>,
}

impl Message for Delivery {
    const KIND: u8 = 4;
    const MAX_BYTES: usize = 2 + 32 + 2 + 2 * SET_BYTES + 4 + (COHORT - 1) * SEALED_BYTES;

    fn check(&self) -> Result<(), DecodeError> {
        bound(self.sealed.len() < COHORT, "sealed")
    }
}

/// R2, instead of a masked input: a ciphertext signed by its dealer does not open. Includes its single-use key as proof. The sender has
/// verified the dealer's signature, so this never opens a share of an honest dealer.
pub type Complaint = Signed<ComplaintBody>;

/// The signed part of a [`Complaint`].
#[derive(Clone, PartialEq, Eq, TlsSize, TlsSerialize, TlsDeserializeBytes)]
pub struct ComplaintBody {
    pub sid: Sid,
    /// The complaining participant; it has sent no masked input in this session and will not send one.
    pub sender: Index,
    pub accused: Index,
    /// E_accused→sender, the key of exactly one ciphertext.
    pub key: [u8; 32],
}

impl std::fmt::Debug for ComplaintBody {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("ComplaintBody").field("sender", &self.sender).field("accused", &self.accused).finish()
    }
}

impl Body for ComplaintBody {
    const PHASE: &'static str = "complain";
    const KIND: u8 = 5;
    const MAX_BYTES: usize = FRAME_BYTES + 2 + 32;

    fn check(&self) -> Result<(), DecodeError> {
        bound(self.sender != self.accused, "accused")
    }

    fn binding(&self) -> Vec<u8> {
        self.sid.to_vec()
    }
}
in_session!(ComplaintBody);
