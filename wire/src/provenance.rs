//! Provenance of a model version, signed by its coordinator.
//!
//! A record is JSON text. It is sent and stored as the signed text, so verifiers need no canonical form, and fields may be added. The
//! signature is Ed25519 by the key of the audit log over `"tributary provenance 1\0" ‖ text`. The text names that key; a verifier compares
//! it with the key that it trusts.

use federation::id::{Digest, ParticipantId, TaskId};
use federation::time::Timestamp;
use ring::digest::{Context, SHA256};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use serde::{Deserialize, Serialize};

use crate::audit::{AuditKey, Hex};

/// Version of the record format.
pub const FORMAT: u32 = 1;
/// Maximum number of [`Provenance::below`]: a record with this many is shorter than [`MAX_RECORD_BYTES`].
pub const MAX_BELOW: u32 = 128;
/// Maximum length of an accepted record, in bytes.
pub const MAX_RECORD_BYTES: usize = 16 << 10;
const RECORD: &[u8] = b"tributary provenance 1\0";
const ROSTER: &[u8] = b"tributary roster 1\0";
const ROSTERS: &[u8] = b"tributary rosters 1\0";
const SURVIVORS: &[u8] = b"tributary survivors 1\0";
const SURVIVORS_OF_GROUPS: &[u8] = b"tributary survivors of groups 1\0";

task_spec::named_enum! {
    /// Origin of a version.
    pub enum Origin {
        /// The version was drawn, or left empty, when the task was created.
        Initial = "initial",
        /// A round computed the version from its base and the updates of participants.
        Trained = "trained",
        /// The version repeats an earlier one: an operator restored it, or the round's quality gate did.
        Restored = "restored",
    }
}

/// A coordinator's statement about a model version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Provenance {
    /// [`FORMAT`].
    pub format: u32,
    /// The coordinator, by the key that signs its audit log and this record.
    pub coordinator: AuditKey,
    pub task: TaskId,
    /// Digest of the participants' work in every round of the task; participants can derive it from an assignment
    /// (`recipe::digest::task_digest`).
    pub task_sha256: Digest,
    /// Version number, from 0.
    pub version: u32,
    /// SHA-256 of the version's file.
    pub sha256: Digest,
    /// Size of the file.
    pub bytes: u64,
    pub origin: Origin,
    /// The version that this one was trained from, or that it repeats; absent in the first one.
    pub base: Option<BaseVersion>,
    /// The attempt at a round that published the version; absent in the first version and in versions restored by an operator.
    pub round: Option<MadeIn>,
    /// [`roster_digest`] of the cohort as announced to its members; absent without secure aggregation.
    pub roster: Option<Digest>,
    /// [`survivors_digest`] of the members of the roster whose updates are in the sum; absent without a roster, and in records of older
    /// programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub survivors: Option<Digest>,
    /// Number of updates in the sum; absent without a round, and if privacy requires that this number stays secret.
    pub updates: Option<u32>,
    /// Records of other coordinators' versions that the updates in the sum come from ([`SignedProvenance::sha256`]): ascending, without
    /// duplicates, the first [`MAX_BELOW`]. Participants named them; absent without any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub below: Vec<Digest>,
    /// The task's privacy cost so far; absent without a privacy mechanism.
    pub privacy: Option<SpentSoFar>,
    /// When it was published.
    pub published_at: Timestamp,
    /// Time of the signature. It is later than the publication if the publishing program kept no records, and after a key replacement.
    pub signed_at: Timestamp,
    /// Name and version of the signing program.
    pub program: String,
}

/// The preceding version, by number and file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BaseVersion {
    pub version: u32,
    pub sha256: Digest,
}

/// An attempt at a round of the task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MadeIn {
    pub round: u32,
    pub attempt: u32,
}

/// An upper bound on the information that all releases so far reveal about a participant, from the privacy ledger.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SpentSoFar {
    /// Against observers of the models who do not know the cohorts.
    pub epsilon: f64,
    pub delta: f64,
}

/// A record with its signature.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SignedProvenance {
    /// JSON of the record: exactly the text that was signed.
    pub record: String,
    /// Ed25519: 128 hexadecimal digits.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub signature: Hex<64>,
}

/// Reasons to reject a record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadProvenance {
    #[error("it cannot be read: {0}")]
    Unreadable(String),
    #[error("it is of format {0}, and this program reads format {FORMAT}")]
    Format(u32),
    #[error("it is not signed by the key {0}, which it names")]
    Signature(AuditKey),
}

impl Provenance {
    /// Signs the record with the key of the coordinator that it names.
    #[must_use]
    pub fn sign(&self, pair: &Ed25519KeyPair) -> SignedProvenance {
        // Ids, numbers, names and null: this cannot fail.
        let record = serde_json::to_string(self).unwrap_or_default();
        let mut signature = [0; 64];
        signature.copy_from_slice(pair.sign(&signed(&record)).as_ref());
        SignedProvenance { record, signature: Hex(signature) }
    }
}

impl SignedProvenance {
    /// Digest by which another record names this one: SHA-256 of the text. The text names the key that signs it.
    #[must_use]
    pub fn sha256(&self) -> Digest {
        let mut context = Context::new(&SHA256);
        context.update(self.record.as_bytes());
        finish(context)
    }

    /// Returns the record if the coordinator that it names signed it. The caller checks whether that coordinator is the expected one.
    ///
    /// # Errors
    /// [`BadProvenance`].
    pub fn open(&self) -> Result<Provenance, BadProvenance> {
        /// The format version, read first because the remaining fields depend on it.
        #[derive(Deserialize)]
        struct Form {
            format: u32,
        }
        let unreadable = |problem: &dyn std::fmt::Display| BadProvenance::Unreadable(problem.to_string());
        if self.record.len() > MAX_RECORD_BYTES {
            return Err(unreadable(&format!("it is longer than {MAX_RECORD_BYTES} bytes")));
        }
        let Form { format } = serde_json::from_slice(self.record.as_bytes()).map_err(|error| unreadable(&error))?;
        if format != FORMAT {
            return Err(BadProvenance::Format(format));
        }
        let record: Provenance = serde_json::from_slice(self.record.as_bytes()).map_err(|error| unreadable(&error))?;
        let key = UnparsedPublicKey::new(&ED25519, record.coordinator.0);
        match key.verify(&signed(&self.record), &self.signature.0) {
            Ok(()) => Ok(record),
            Err(_) => Err(BadProvenance::Signature(record.coordinator)),
        }
    }
}

/// Names the key that signs with this pair.
#[must_use]
pub fn key_of(pair: &Ed25519KeyPair) -> AuditKey {
    let mut key = [0; 32];
    key.copy_from_slice(pair.public_key().as_ref());
    Hex(key)
}

fn signed(record: &str) -> Vec<u8> {
    [RECORD, record.as_bytes()].concat()
}

/// Digest of a cohort's members: `SHA-256("tributary roster 1\0" ‖ u32be(members) ‖ their ids, ascending, 16 bytes each)`. For a cohort
/// divided into groups, whose members know only their own group: `SHA-256("tributary rosters 1\0" ‖ u32be(groups) ‖ that digest of each
/// group, in their order)`.
#[must_use]
pub fn roster_digest(groups: &[Vec<ParticipantId>]) -> Digest {
    members_digest(groups, ROSTER, ROSTERS)
}

/// Digest of the members included in a sum, like [`roster_digest`] with `"tributary survivors 1\0"` and `"tributary survivors of groups
/// 1\0"`. A group left out of the sum is empty.
#[must_use]
pub fn survivors_digest(groups: &[Vec<ParticipantId>]) -> Digest {
    members_digest(groups, SURVIVORS, SURVIVORS_OF_GROUPS)
}

fn members_digest(groups: &[Vec<ParticipantId>], of_one: &[u8], of_several: &[u8]) -> Digest {
    match groups {
        [cohort] => group_digest(cohort, of_one),
        groups => {
            let mut context = Context::new(&SHA256);
            context.update(of_several);
            context.update(&count(groups.len()));
            groups.iter().for_each(|group| context.update(&group_digest(group, of_one).0));
            finish(context)
        }
    }
}

fn group_digest(members: &[ParticipantId], domain: &[u8]) -> Digest {
    let mut members = members.to_vec();
    members.sort_unstable();
    let mut context = Context::new(&SHA256);
    context.update(domain);
    context.update(&count(members.len()));
    members.iter().for_each(|member| context.update(member.0.as_bytes()));
    finish(context)
}

fn count(items: usize) -> [u8; 4] {
    u32::try_from(items).unwrap_or(u32::MAX).to_be_bytes()
}

fn finish(context: Context) -> Digest {
    let mut digest = Digest([0; 32]);
    digest.0.copy_from_slice(context.finish().as_ref());
    digest
}
