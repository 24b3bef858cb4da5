//! R3 and R4: signatures on the set of survivors, and the shares for opening the sum.

use tls_codec::{TlsDeserializeBytes, TlsSerialize, TlsSize, TlsVecU16, TlsVecU32};

use super::session::{COHORT, FRAME_BYTES, Sid};
use super::signed::{Body, InSession, Signed, in_session};
use crate::codec::{DecodeError, Message, bound};
use crate::crypto::shamir::SHARE_BYTES;
use crate::crypto::signature::Signature;
use crate::crypto::suite::PROTOCOL;
use crate::participants::{Index, IndexSet};

/// R3: the sender confirms these dealers and survivors, and signs only these in this session.
#[derive(Debug, Clone, PartialEq, Eq, TlsSize, TlsSerialize, TlsDeserializeBytes)]
pub struct Consistency {
    pub sid: Sid,
    pub sender: Index,
    pub signature: Signature,
}

impl Message for Consistency {
    const KIND: u8 = 8;
    const MAX_BYTES: usize = FRAME_BYTES;

    fn check(&self) -> Result<(), DecodeError> {
        Ok(())
    }
}

/// `P || "u3" || sid || H(U2) || H(U3)`.
#[must_use]
pub fn consistency_text(sid: &Sid, dealers: &IndexSet, survivors: &IndexSet) -> Vec<u8> {
    [PROTOCOL, b"u3", sid, &dealers.digest(), &survivors.digest()].concat()
}

/// R4, to all participants: the signatures of all participants that confirmed the survivors.
#[derive(Debug, Clone, PartialEq, Eq, TlsSize, TlsSerialize, TlsDeserializeBytes)]
pub struct Agreement {
    pub sid: Sid,
    /// U4, ascending by position.
    pub signatures: TlsVecU32<AgreementSignature>,
}

/// One signature of an [`Agreement`].
#[derive(Debug, Clone, PartialEq, Eq, TlsSize, TlsSerialize, TlsDeserializeBytes)]
pub struct AgreementSignature {
    pub signer: Index,
    pub signature: Signature,
}

impl Message for Agreement {
    const KIND: u8 = 9;
    const MAX_BYTES: usize = 2 + 32 + 4 + COHORT * 66;

    fn check(&self) -> Result<(), DecodeError> {
        bound(self.signatures.len() <= COHORT, "signatures")
    }
}

/// R4: the sender's shares for opening the sum: *one* share per dealer, never both.
pub type Unmasking = Signed<UnmaskingBody>;

/// The signed part of an [`Unmasking`].
#[derive(Clone, PartialEq, Eq, TlsSize, TlsSerialize, TlsDeserializeBytes)]
pub struct UnmaskingBody {
    pub sid: Sid,
    pub sender: Index,
    /// One share per dealer in U2, ascending by position: of the self-mask seed if the dealer survived, otherwise of the mask seed. The
    /// agreed survivors determine the kind; the message has no field for it.
    pub shares: TlsVecU16<[u8; SHARE_BYTES]>,
}

impl std::fmt::Debug for UnmaskingBody {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("UnmaskingBody").field("sender", &self.sender).finish_non_exhaustive()
    }
}

impl Body for UnmaskingBody {
    const PHASE: &'static str = "unmask";
    const KIND: u8 = 10;
    const MAX_BYTES: usize = FRAME_BYTES + 2 + COHORT * SHARE_BYTES;

    fn check(&self) -> Result<(), DecodeError> {
        bound(self.shares.len() <= COHORT, "shares")
    }

    fn binding(&self) -> Vec<u8> {
        self.sid.to_vec()
    }
}
in_session!(UnmaskingBody);
