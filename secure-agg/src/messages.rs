//! Every message, in protocol order. What a participant sends is signed; what the coordinator sends is checked by content.
//!
//! | # | direction | message | kind |
//! |---|---|---|---|
//! | R0 | to the coordinator | [`Advertise`] | 1 |
//! | R1 | to participants | [`Roster`] | 2 |
//! | R1 | to the coordinator | [`ShareKeys`] | 3 |
//! | R2 | to each participant | [`Delivery`] | 4 |
//! | R2 | to the coordinator | [`Complaint`] *or* [`MaskedInput`] | 5, 6 |
//! | R3 | to participants | [`Survivors`] | 7 |
//! | R3 | to the coordinator | [`Consistency`] | 8 |
//! | R4 | to participants | [`Agreement`] | 9 |
//! | R4 | to the coordinator | [`Unmasking`] | 10 |
//! | after | to the coordinator | [`AbortStatement`](crate::unopened::AbortStatement) | 11 |
//! | after | to participants | [`Unopened`](crate::unopened::Unopened) | 12 |

use tls_codec::{
    DeserializeBytes, Error, Serialize, Size, TlsByteVecU8, TlsByteVecU16, TlsDeserializeBytes, TlsSerialize, TlsSize,
    TlsVecU16, TlsVecU32,
};

use crate::codec::{DecodeError, Message, bound};
use crate::crypto::aead::SEALED_BYTES;
use crate::crypto::agreement::PublicKey;
use crate::crypto::shamir::SHARE_BYTES;
use crate::crypto::signature::{IdentityKey, Signature, Signer, SignerFault};
use crate::crypto::suite::PROTOCOL;
use crate::crypto::transcript::{Digest, Transcript, sha256};
use crate::params::SessionConfig;
use crate::participants::{Index, IndexSet, MAX_COHORT};

/// Longest client id, in bytes.
pub const MAX_CLIENT_ID_BYTES: usize = 64;
/// Longest task id, in bytes.
pub const MAX_TASK_ID_BYTES: usize = 64;
/// Longest certificate, in bytes.
pub const MAX_CERTIFICATE_BYTES: usize = 2048;

const COHORT: usize = MAX_COHORT as usize;
const SET_BYTES: usize = 3 + COHORT / 8;
/// Header, sid, sender and signature of a signed message of a session.
const FRAME_BYTES: usize = 2 + 32 + 2 + 64;

/// The id of a session: what every key and every signature of it is bound to.
pub type Sid = Digest;
/// Two sealed shares on their way from a dealer to a holder.
pub type SealedShares = [u8; SEALED_BYTES];

/// Which attempt at which round of which task.
#[derive(Debug, Clone, PartialEq, Eq, TlsSize, TlsSerialize, TlsDeserializeBytes)]
pub struct Round {
    /// The task, up to [`MAX_TASK_ID_BYTES`].
    pub task_id: TlsByteVecU8,
    /// The round's number within the task.
    pub round: u64,
    /// 0 for the first attempt at the round. A further attempt has fresh keys; see the retry rule of the crate.
    pub attempt: u32,
}

impl Round {
    /// Names an attempt.
    #[must_use]
    pub fn new(task_id: &[u8], round: u64, attempt: u32) -> Self {
        Self { task_id: TlsByteVecU8::from_slice(task_id), round, attempt }
    }

    pub(crate) fn check(&self) -> Result<(), DecodeError> {
        bound((1..=MAX_TASK_ID_BYTES).contains(&self.task_id.len()), "task_id")
    }
}

/// The part of a message that its sender signs.
pub trait Body: Serialize + DeserializeBytes {
    /// The phase in the signed text.
    const PHASE: &'static str;
    /// See [`Message::KIND`].
    const KIND: u8;
    /// See [`Message::MAX_BYTES`].
    const MAX_BYTES: usize;

    /// See [`Message::check`].
    ///
    /// # Errors
    /// [`DecodeError::Bounds`] naming the field.
    fn check(&self) -> Result<(), DecodeError>;

    /// What the signature binds the body to: the session id, or for keys that precede a session the round.
    fn binding(&self) -> Vec<u8>;

    /// `P || phase || binding || SHA-256(body)`.
    fn signed_text(&self) -> Vec<u8> {
        let body = self.tls_serialize_detached().expect("bounded fields always fit their length prefixes");
        [PROTOCOL, Self::PHASE.as_bytes(), &self.binding(), &sha256(&body)].concat()
    }
}

/// A body with its sender's signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signed<B> {
    /// What is said.
    pub body: B,
    /// By whom: Ed25519 over [`Body::signed_text`].
    pub signature: Signature,
}

impl<B: Body> Signed<B> {
    /// Signs a body.
    ///
    /// # Errors
    /// [`SignerFault`] when the signer cannot sign.
    pub fn sign(body: B, signer: &dyn Signer) -> Result<Self, SignerFault> {
        let signature = signer.sign(&body.signed_text())?;
        Ok(Self { body, signature })
    }

    /// Whether `identity` signed the body.
    #[must_use]
    pub fn is_signed_by(&self, identity: &IdentityKey) -> bool {
        identity.verifies(&self.body.signed_text(), &self.signature)
    }
}

impl<B: Body> Size for Signed<B> {
    fn tls_serialized_len(&self) -> usize {
        self.body.tls_serialized_len() + self.signature.len()
    }
}

impl<B: Body> Serialize for Signed<B> {
    fn tls_serialize<W: std::io::Write>(&self, writer: &mut W) -> Result<usize, Error> {
        Ok(self.body.tls_serialize(writer)? + self.signature.tls_serialize(writer)?)
    }
}

impl<B: Body> DeserializeBytes for Signed<B> {
    fn tls_deserialize_bytes(bytes: &[u8]) -> Result<(Self, &[u8]), Error> {
        let (body, rest) = B::tls_deserialize_bytes(bytes)?;
        let (signature, rest) = Signature::tls_deserialize_bytes(rest)?;
        Ok((Self { body, signature }, rest))
    }
}

impl<B: Body> Message for Signed<B> {
    const KIND: u8 = B::KIND;
    const MAX_BYTES: usize = B::MAX_BYTES;

    fn check(&self) -> Result<(), DecodeError> {
        self.body.check()
    }
}

/// A body that belongs to a session and a sender in its roster.
pub trait InSession: Body {
    /// The session.
    fn sid(&self) -> &Sid;
    /// The sender's position.
    fn sender(&self) -> Index;
}

macro_rules! in_session {
    ($body:ty) => {
        impl InSession for $body {
            fn sid(&self) -> &Sid {
                &self.sid
            }

            fn sender(&self) -> Index {
                self.sender
            }
        }
    };
}

/// R0: the keys of one participant for one attempt. May be sent when the participant checks in, before the cohort is drawn.
pub type Advertise = Signed<AdvertiseBody>;

/// What [`Advertise`] says.
#[derive(Debug, Clone, PartialEq, Eq, TlsSize, TlsSerialize, TlsDeserializeBytes)]
pub struct AdvertiseBody {
    /// The attempt the keys are for.
    pub round: Round,
    /// The participant, 1 to [`MAX_CLIENT_ID_BYTES`] opaque bytes.
    pub client_id: TlsByteVecU8,
    /// What binds a signing key to it, up to [`MAX_CERTIFICATE_BYTES`] opaque bytes.
    pub certificate: TlsByteVecU16,
    /// Agrees the keys that seal shares.
    pub c_pk: PublicKey,
    /// Agrees the pairwise masks; its private half is shared among the cohort.
    pub s_pk: PublicKey,
    /// Commitment to the seed of the self mask.
    pub b_commit: Digest,
}

impl Body for AdvertiseBody {
    const PHASE: &'static str = "advertise";
    const KIND: u8 = 1;
    const MAX_BYTES: usize =
        2 + (1 + MAX_TASK_ID_BYTES + 12) + (1 + MAX_CLIENT_ID_BYTES) + (2 + MAX_CERTIFICATE_BYTES) + 3 * 32 + 64;

    fn check(&self) -> Result<(), DecodeError> {
        self.round.check()?;
        bound((1..=MAX_CLIENT_ID_BYTES).contains(&self.client_id.len()), "client_id")?;
        bound(self.certificate.len() <= MAX_CERTIFICATE_BYTES, "certificate")
    }

    /// `enc(task_id) || u64be(round) || u32be(attempt)`: there is no session yet.
    fn binding(&self) -> Vec<u8> {
        let task = self.round.task_id.as_slice();
        let len = u32::try_from(task.len()).unwrap_or(u32::MAX).to_be_bytes();
        [&len[..], task, &self.round.round.to_be_bytes(), &self.round.attempt.to_be_bytes()].concat()
    }
}

/// R1, to everybody and the same for all: who takes part. Cacheable; nothing in it is secret.
#[derive(Debug, Clone, PartialEq, Eq, TlsSize, TlsSerialize, TlsDeserializeBytes)]
pub struct Roster {
    /// The attempt.
    pub round: Round,
    /// Digest of the model that this round trains from.
    pub model_hash: Digest,
    /// What the task asks for.
    pub config: SessionConfig,
    /// t, as the coordinator computed it.
    pub threshold: u16,
    /// k_m, as the coordinator computed it.
    pub out_degree: u16,
    /// t_m, as the coordinator computed it.
    pub min_out: u16,
    /// The participants, strictly ascending by client id; positions count from 1.
    pub entries: TlsVecU32<RosterEntry>,
}

/// One participant: its [`Advertise`] without the round, which is the roster's.
#[derive(Debug, Clone, PartialEq, Eq, TlsSize, TlsSerialize, TlsDeserializeBytes)]
pub struct RosterEntry {
    /// See [`AdvertiseBody::client_id`].
    pub client_id: TlsByteVecU8,
    /// See [`AdvertiseBody::certificate`].
    pub certificate: TlsByteVecU16,
    /// See [`AdvertiseBody::c_pk`].
    pub c_pk: PublicKey,
    /// See [`AdvertiseBody::s_pk`].
    pub s_pk: PublicKey,
    /// See [`AdvertiseBody::b_commit`].
    pub b_commit: Digest,
    /// The advertisement's signature.
    pub signature: Signature,
}

impl RosterEntry {
    /// The entry of an advertisement.
    #[must_use]
    pub fn of(advertise: &Advertise) -> Self {
        let AdvertiseBody { client_id, certificate, c_pk, s_pk, b_commit, .. } = advertise.body.clone();
        Self { client_id, certificate, c_pk, s_pk, b_commit, signature: advertise.signature }
    }

    /// The advertisement this is the entry of.
    #[must_use]
    pub fn advertise(&self, round: &Round) -> Advertise {
        let Self { client_id, certificate, c_pk, s_pk, b_commit, signature } = self.clone();
        Signed { body: AdvertiseBody { round: round.clone(), client_id, certificate, c_pk, s_pk, b_commit }, signature }
    }
}

impl Message for Roster {
    const KIND: u8 = 2;
    const MAX_BYTES: usize = 512 + COHORT * AdvertiseBody::MAX_BYTES;

    fn check(&self) -> Result<(), DecodeError> {
        self.round.check()?;
        bound(self.entries.len() <= COHORT, "entries")?;
        self.entries.iter().try_for_each(|entry| {
            bound((1..=MAX_CLIENT_ID_BYTES).contains(&entry.client_id.len()), "client_id")?;
            bound(entry.certificate.len() <= MAX_CERTIFICATE_BYTES, "certificate")
        })
    }
}

/// R1: one dealer's shares for every other participant, and the mask neighbours it drew.
pub type ShareKeys = Signed<ShareKeysBody>;

/// What [`ShareKeys`] says.
#[derive(Debug, Clone, PartialEq, Eq, TlsSize, TlsSerialize, TlsDeserializeBytes)]
pub struct ShareKeysBody {
    /// The session.
    pub sid: Sid,
    /// The dealer's position.
    pub sender: Index,
    /// One for every other participant, ascending by position: share of the mask seed, then of the self-mask seed.
    pub sealed: TlsVecU32<SealedShares>,
    /// The out-neighbours.
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

/// R2, to one participant: who dealt, what they dealt it, and who drew it as a mask neighbour.
#[derive(Debug, Clone, PartialEq, Eq, TlsSize, TlsSerialize, TlsDeserializeBytes)]
pub struct Delivery {
    /// The session.
    pub sid: Sid,
    /// To whom.
    pub recipient: Index,
    /// U2: those whose shares arrived.
    pub dealers: IndexSet,
    /// Those of U2 whose out list names the recipient.
    pub incoming: IndexSet,
    /// From every other member of U2, ascending by position.
    pub sealed: TlsVecU32<SealedShares>,
}

impl Message for Delivery {
    const KIND: u8 = 4;
    const MAX_BYTES: usize = 2 + 32 + 2 + 2 * SET_BYTES + 4 + (COHORT - 1) * SEALED_BYTES;

    fn check(&self) -> Result<(), DecodeError> {
        bound(self.sealed.len() < COHORT, "sealed")
    }
}

/// R2, instead of a masked input: the ciphertext that a dealer signed does not open, and here is its single-use key to see for
/// yourself. The sender has checked the dealer's signature, so no share of an honest dealer is ever opened by this.
pub type Complaint = Signed<ComplaintBody>;

/// What [`Complaint`] says.
#[derive(Clone, PartialEq, Eq, TlsSize, TlsSerialize, TlsDeserializeBytes)]
pub struct ComplaintBody {
    /// The session.
    pub sid: Sid,
    /// Who complains; it has sent no masked input and never will in this session.
    pub sender: Index,
    /// The dealer.
    pub accused: Index,
    /// E_accused→sender, which seals exactly one ciphertext.
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

/// R3: the sender saw these dealers and these survivors, and will never sign others in this session.
#[derive(Debug, Clone, PartialEq, Eq, TlsSize, TlsSerialize, TlsDeserializeBytes)]
pub struct Consistency {
    /// The session.
    pub sid: Sid,
    /// Who signed.
    pub sender: Index,
    /// Over [`consistency_text`].
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

/// R4, to everybody: the signatures of those who agree on the survivors.
#[derive(Debug, Clone, PartialEq, Eq, TlsSize, TlsSerialize, TlsDeserializeBytes)]
pub struct Agreement {
    /// The session.
    pub sid: Sid,
    /// U4, ascending by position.
    pub signatures: TlsVecU32<AgreementSignature>,
}

/// One signature of an [`Agreement`].
#[derive(Debug, Clone, PartialEq, Eq, TlsSize, TlsSerialize, TlsDeserializeBytes)]
pub struct AgreementSignature {
    /// Who signed.
    pub signer: Index,
    /// Over [`consistency_text`].
    pub signature: Signature,
}

impl Message for Agreement {
    const KIND: u8 = 9;
    const MAX_BYTES: usize = 2 + 32 + 4 + COHORT * 66;

    fn check(&self) -> Result<(), DecodeError> {
        bound(self.signatures.len() <= COHORT, "signatures")
    }
}

/// R4: what the sender holds that opens the sum: for each dealer *one* share, never both.
pub type Unmasking = Signed<UnmaskingBody>;

/// What [`Unmasking`] says.
#[derive(Clone, PartialEq, Eq, TlsSize, TlsSerialize, TlsDeserializeBytes)]
pub struct UnmaskingBody {
    /// The session.
    pub sid: Sid,
    /// Whose shares.
    pub sender: Index,
    /// For every dealer in U2, ascending by position: of its self-mask seed if it survived, else of its mask seed. There is
    /// no tag to lie with: which of the two it is follows from the agreed survivors.
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

/// The roster's digest (specification §3, "Derivations"), with the signing keys that certificates bind to its entries.
pub(crate) fn roster_root(entries: &[RosterEntry], identities: &[IdentityKey]) -> Digest {
    let count = u32::try_from(entries.len()).unwrap_or(u32::MAX);
    let start = Transcript::labelled("roster").u32(count);
    let add = |transcript: Transcript, (entry, identity): (&RosterEntry, &IdentityKey)| {
        transcript
            .enc(entry.client_id.as_slice())
            .enc(&identity.0)
            .enc(&entry.c_pk)
            .enc(&entry.s_pk)
            .enc(&entry.b_commit)
            .enc(&entry.signature)
    };
    entries.iter().zip(identities).fold(start, add).finish()
}

/// The session id: task, round, attempt, model, configuration and roster in one digest.
pub(crate) fn session_id(round: &Round, model_hash: &Digest, config_hash: &Digest, roster_root: &Digest) -> Sid {
    Transcript::labelled("sid")
        .enc(round.task_id.as_slice())
        .u64(round.round)
        .u32(round.attempt)
        .enc(model_hash)
        .enc(config_hash)
        .enc(roster_root)
        .finish()
}
