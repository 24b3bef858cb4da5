//! R2 and R3: masked inputs, and the set of inputs in the sum.

use tls_codec::{TlsDeserializeBytes, TlsSerialize, TlsSize, TlsVecU32};

use super::session::{COHORT, FRAME_BYTES, SET_BYTES, Sid};
use super::signed::{Body, InSession, Signed, in_session};
use crate::codec::{DecodeError, Message, bound};
use crate::crypto::signature::Signature;
use crate::crypto::transcript::Digest;
use crate::participants::{Index, IndexSet};

/// R2: announces the length, digest and masks of the sender's masked input. The vector itself is uploaded separately.
pub type MaskedInput = Signed<MaskedInputBody>;

/// The signed part of a [`MaskedInput`].
#[derive(Debug, Clone, PartialEq, Eq, TlsSize, TlsSerialize, TlsDeserializeBytes)]
pub struct MaskedInputBody {
    pub sid: Sid,
    pub sender: Index,
    /// Length of the packed vectors, in bytes.
    pub bytes: u64,
    /// [`upload::digest`](crate::upload) of the packed vectors.
    pub digest: Digest,
    /// H(U2), as announced to the sender: the dealers whose masks may be on the input.
    pub dealers: Digest,
    /// The sender's drawn out-neighbours, which protect it by their masks. Signed again here, so other participants can verify that enough
    /// of them remain, see [`Survivors::inputs`].
    pub out: IndexSet,
}

impl Body for MaskedInputBody {
    const PHASE: &'static str = "masked";
    const KIND: u8 = 6;
    const MAX_BYTES: usize = FRAME_BYTES + 8 + 32 + 32 + SET_BYTES;

    fn check(&self) -> Result<(), DecodeError> {
        Ok(())
    }

    fn binding(&self) -> Vec<u8> {
        self.sid.to_vec()
    }
}
in_session!(MaskedInputBody);

/// R3, to all participants: those whose inputs are in the sum.
#[derive(Debug, Clone, PartialEq, Eq, TlsSize, TlsSerialize, TlsDeserializeBytes)]
pub struct Survivors {
    pub sid: Sid,
    pub survivors: IndexSet,
    /// The data that each survivor signed with its input, ascending by position; empty if the mask graph is complete. A survivor's self
    /// mask is opened with or without its own signature on U3, so the participants that open it must verify that its neighbours remain.
    pub inputs: TlsVecU32<SurvivorInput>,
}

/// The fields of a survivor's [`MaskedInput`] not given by the session.
#[derive(Debug, Clone, PartialEq, Eq, TlsSize, TlsSerialize, TlsDeserializeBytes)]
pub struct SurvivorInput {
    pub digest: Digest,
    pub out: IndexSet,
    /// The masked input's signature.
    pub signature: Signature,
}

impl SurvivorInput {
    #[must_use]
    pub fn of(input: &MaskedInput) -> Self {
        Self { digest: input.body.digest, out: input.body.out.clone(), signature: input.signature }
    }

    /// Reconstructs the message that `sender` must have signed, with the session, length and U2 of `like`.
    #[must_use]
    pub fn masked_input(&self, sender: Index, like: &MaskedInputBody) -> MaskedInput {
        let MaskedInputBody { sid, bytes, dealers, .. } = *like;
        let body = MaskedInputBody { sid, sender, bytes, digest: self.digest, dealers, out: self.out.clone() };
        Signed { body, signature: self.signature }
    }
}

impl Message for Survivors {
    const KIND: u8 = 7;
    const MAX_BYTES: usize = 2 + 32 + SET_BYTES + 4 + COHORT * (32 + SET_BYTES + 64);

    fn check(&self) -> Result<(), DecodeError> {
        bound(self.inputs.len() <= COHORT, "inputs")
    }
}
