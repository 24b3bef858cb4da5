//! R0 and R1: the keys of the participants, and the roster that fixes the session.

use tls_codec::{TlsByteVecU16, TlsDeserializeBytes, TlsSerialize, TlsSize, TlsVecU32};

use super::session::{COHORT, ClientId, MAX_CERTIFICATE_BYTES, MAX_CLIENT_ID_BYTES, MAX_TASK_ID_BYTES, RoundId, Sid};
use super::signed::{Body, Signed};
use crate::codec::{DecodeError, Message, bound};
use crate::crypto::agreement::PublicKey;
use crate::crypto::signature::{IdentityKey, Signature};
use crate::crypto::transcript::{Digest, Transcript};
use crate::params::SessionConfig;

/// R0: the keys of one participant for one attempt. May be sent at check-in, before the cohort is drawn.
pub type Advertise = Signed<AdvertiseBody>;

/// The signed part of an [`Advertise`].
#[derive(Debug, Clone, PartialEq, Eq, TlsSize, TlsSerialize, TlsDeserializeBytes)]
pub struct AdvertiseBody {
    /// The attempt the keys are for.
    pub round: RoundId,
    /// The participant, 1 to [`MAX_CLIENT_ID_BYTES`] opaque bytes, with its stated batch.
    pub client_id: ClientId,
    /// The certificate of its signing key, up to [`MAX_CERTIFICATE_BYTES`] opaque bytes.
    pub certificate: TlsByteVecU16,
    /// Public key for agreeing the keys that seal shares.
    pub c_pk: PublicKey,
    /// Public key for agreeing the pairwise masks; its private half is secret-shared among the cohort.
    pub s_pk: PublicKey,
    /// Commitment to the seed of the self mask.
    pub b_commit: Digest,
}

impl Body for AdvertiseBody {
    const PHASE: &'static str = "advertise";
    const KIND: u8 = 1;
    const MAX_BYTES: usize =
        2 + (1 + MAX_TASK_ID_BYTES + 12) + (1 + MAX_CLIENT_ID_BYTES + 32) + (2 + MAX_CERTIFICATE_BYTES) + 3 * 32 + 64;

    fn check(&self) -> Result<(), DecodeError> {
        self.round.check()?;
        self.client_id.check()?;
        bound(self.certificate.len() <= MAX_CERTIFICATE_BYTES, "certificate")
    }

    /// `enc(task_id) || u64be(round) || u32be(attempt)`: the session does not exist yet.
    fn binding(&self) -> Vec<u8> {
        let task = self.round.task_id.as_slice();
        let len = u32::try_from(task.len()).unwrap_or(u32::MAX).to_be_bytes();
        [&len[..], task, &self.round.round.to_be_bytes(), &self.round.attempt.to_be_bytes()].concat()
    }
}

/// R1, identical for all members: the participants. Cacheable and public.
#[derive(Debug, Clone, PartialEq, Eq, TlsSize, TlsSerialize, TlsDeserializeBytes)]
pub struct Roster {
    pub round: RoundId,
    /// Digest of the round's base model.
    pub model_hash: Digest,
    /// The session settings of the task.
    pub config: SessionConfig,
    /// t, as the coordinator computed it.
    pub threshold: u16,
    /// k_m, as the coordinator computed it.
    pub out_degree: u16,
    /// t_m, as the coordinator computed it.
    pub min_out: u16,
    /// Strictly ascending by client id; positions count from 1.
    pub entries: TlsVecU32<RosterEntry>,
}

/// One participant's [`Advertise`] without the round, given by the roster.
#[derive(Debug, Clone, PartialEq, Eq, TlsSize, TlsSerialize, TlsDeserializeBytes)]
pub struct RosterEntry {
    pub client_id: ClientId,
    pub certificate: TlsByteVecU16,
    pub c_pk: PublicKey,
    pub s_pk: PublicKey,
    pub b_commit: Digest,
    /// Signature of the advertisement by the key of the participant's certificate.
    pub signature: Signature,
}

impl RosterEntry {
    #[must_use]
    pub fn of(advertise: &Advertise) -> Self {
        let AdvertiseBody { client_id, certificate, c_pk, s_pk, b_commit, .. } = advertise.body.clone();
        Self { client_id, certificate, c_pk, s_pk, b_commit, signature: advertise.signature }
    }

    /// The advertisement of this entry.
    #[must_use]
    pub fn advertise(&self, round: &RoundId) -> Advertise {
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
            entry.client_id.check()?;
            bound(entry.certificate.len() <= MAX_CERTIFICATE_BYTES, "certificate")
        })
    }
}

/// The roster's digest (specification §3, "Derivations"), including the signing keys that the certificates bind. It covers
/// stated batches through the entries' signatures.
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

/// The session id: task, round, attempt, model, configuration and roster , in one digest.
pub(crate) fn session_id(round: &RoundId, model_hash: &Digest, config_hash: &Digest, roster_root: &Digest) -> Sid {
    Transcript::labelled("sid")
        .enc(round.task_id.as_slice())
        .u64(round.round)
        .u32(round.attempt)
        .enc(model_hash)
        .enc(config_hash)
        .enc(roster_root)
        .finish()
}
