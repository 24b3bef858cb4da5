//! R2 and R3: masked inputs, and whose are in the sum.

use tls_codec::{TlsDeserializeBytes, TlsSerialize, TlsSize, TlsVecU32};

use super::session::{COHORT, FRAME_BYTES, SET_BYTES, Sid};
use super::signed::{Body, InSession, Signed, in_session};
use crate::codec::{DecodeError, Message, bound};
use crate::crypto::signature::Signature;
use crate::crypto::transcript::Digest;
use crate::participants::{Index, IndexSet};

/// R2: that a masked input of this length and digest is the sender's, and which masks are on it. The vector itself travels beside
/// the messages.
pub type MaskedInput = Signed<MaskedInputBody>;

/// What [`MaskedInput`] says.
#[derive(Debug, Clone, PartialEq, Eq, TlsSize, TlsSerialize, TlsDeserializeBytes)]
pub struct MaskedInputBody {
    /// The session.
    pub sid: Sid,
    /// Whose input.
    pub sender: Index,
    /// Length of the packed vectors, in bytes.
    pub bytes: u64,
    /// [`upload::digest`](crate::upload) of the packed vectors.
    pub digest: Digest,
    /// H(U2), as the sender was told: whose masks can be on the input.
    pub dealers: Digest,
    /// The out-neighbours, as the sender drew them: which of those masks protect it. Signed once more here, so that the others can
    /// see for themselves that enough are left, see [`Survivors::inputs`].
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

/// R3, to everybody: whose inputs are in the sum.
#[derive(Debug, Clone, PartialEq, Eq, TlsSize, TlsSerialize, TlsDeserializeBytes)]
pub struct Survivors {
    /// The session.
    pub sid: Sid,
    /// U3.
    pub survivors: IndexSet,
    /// What each survivor signed with its input, ascending by position; none where everybody masks with everybody. A survivor's self
    /// mask is opened whether or not it is asked about U3, so those who open it must see that its own neighbours are left.
    pub inputs: TlsVecU32<SurvivorInput>,
}

/// What of a survivor's [`MaskedInput`] does not follow from the session.
#[derive(Debug, Clone, PartialEq, Eq, TlsSize, TlsSerialize, TlsDeserializeBytes)]
pub struct SurvivorInput {
    /// See [`MaskedInputBody::digest`].
    pub digest: Digest,
    /// See [`MaskedInputBody::out`].
    pub out: IndexSet,
    /// The masked input's signature.
    pub signature: Signature,
}

impl SurvivorInput {
    /// What of an input the others are shown.
    #[must_use]
    pub fn of(input: &MaskedInput) -> Self {
        Self { digest: input.body.digest, out: input.body.out.clone(), signature: input.signature }
    }

    /// The message that `sender` must have signed, in the session and with the length and U2 that `like` names.
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
