//! Where a model version comes from, signed by the coordinator that published it.
//!
//! A record is JSON text, which travels and is stored as the text that was signed: whoever checks it needs no canonical form, and
//! fields may be added. The signature is Ed25519 by the key of the audit log over `"tributary provenance 1\0" ‖ text`; the text names
//! that key, and whoever checks compares it with the one that he knows.

use federation::id::{Digest, ParticipantId, TaskId};
use federation::time::Timestamp;
use ring::digest::{Context, SHA256};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use serde::{Deserialize, Serialize};

use crate::audit::{AuditKey, Hex};

/// Version of the form of records.
pub const FORMAT: u32 = 1;
/// Longest text of a record that is read, in bytes.
pub const MAX_RECORD_BYTES: usize = 16 << 10;
const RECORD: &[u8] = b"tributary provenance 1\0";
const ROSTER: &[u8] = b"tributary roster 1\0";
const ROSTERS: &[u8] = b"tributary rosters 1\0";
const SURVIVORS: &[u8] = b"tributary survivors 1\0";
const SURVIVORS_OF_GROUPS: &[u8] = b"tributary survivors of groups 1\0";

task_spec::named_enum! {
    /// How a version came to be.
    pub enum Origin {
        /// It was drawn, or left empty, when the task was created.
        Initial = "initial",
        /// A round made it from its base and the updates of participants.
        Trained = "trained",
        /// It is an earlier version again: an operator restored it, or the round's quality gate did.
        Restored = "restored",
    }
}

/// What a coordinator says of a model version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Provenance {
    /// [`FORMAT`].
    pub format: u32,
    /// The coordinator, by the key that signs its audit log and this record.
    pub coordinator: AuditKey,
    pub task: TaskId,
    /// Digest of what participants do in every round of the task, as they can derive it from an assignment
    /// (`recipe::digest::task_digest`).
    pub task_sha256: Digest,
    /// Counts from 0.
    pub version: u32,
    /// Of the version's file.
    pub sha256: Digest,
    /// Size of the file.
    pub bytes: u64,
    pub origin: Origin,
    /// The version that it was trained from, or is again; none for the first one.
    pub base: Option<BaseVersion>,
    /// The attempt at a round that published it; none for the first one, and where an operator restored it.
    pub round: Option<MadeIn>,
    /// [`roster_digest`] of the cohort as its members were told it; none without secure aggregation.
    pub roster: Option<Digest>,
    /// [`survivors_digest`] of the members of the roster whose updates are in the sum; none without a roster, and in records of programs
    /// that did not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub survivors: Option<Digest>,
    /// Number of updates in the sum; none without a round, and where privacy rests on that number being unknown.
    pub updates: Option<u32>,
    /// What the task had cost up to here; none without a privacy mechanism.
    pub privacy: Option<SpentSoFar>,
    /// When it was published.
    pub published_at: Timestamp,
    /// When this was signed: later than published for versions of a program that kept no records, and after the key was replaced.
    pub signed_at: Timestamp,
    /// The program that signed, with its version.
    pub program: String,
}

/// The version before, by number and file.
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

/// An upper bound on what all releases so far tell of a participant, from the privacy ledger.
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

/// Why a record proves nothing.
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
    /// Signs the record, with the key that it names as the coordinator.
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
    /// The record, if the coordinator that it names has signed it. Whether that is the right one is for the caller to say.
    ///
    /// # Errors
    /// [`BadProvenance`].
    pub fn open(&self) -> Result<Provenance, BadProvenance> {
        /// Read first: what else there is depends on it.
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

/// Digest of who was in a cohort: `SHA-256("tributary roster 1\0" ‖ u32be(members) ‖ their ids, ascending, 16 bytes each)`. Of a cohort
/// that is divided, whose members know their own group alone: `SHA-256("tributary rosters 1\0" ‖ u32be(groups) ‖ that digest of each
/// group, in their order)`.
#[must_use]
pub fn roster_digest(groups: &[Vec<ParticipantId>]) -> Digest {
    members_digest(groups, ROSTER, ROSTERS)
}

/// Digest of whose updates are in a sum, like [`roster_digest`] with `"tributary survivors 1\0"` and `"tributary survivors of groups 1\0"`. A
/// group that was left out has no members.
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
