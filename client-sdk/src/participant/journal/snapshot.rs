//! The records a participant keeps in its journal, and how to read every version of them ever written.
//!
//! A record is `"tributary record"`, the version (u16), the length of a JSON header (u32), the header, the binary parts
//! whose lengths the header gives, and SHA-256 of all that; numbers are little-endian. Fields are only added to
//! headers; `tests/snapshots` holds a record of every version.
//!
//! In version 8 an update on its way comes last, behind the digest, and its length (u64) and SHA-256 lie between the
//! version and the length of the header. An update is hashed once, to be sent, and is written without a copy or another
//! hash. In version 9 it is sent in parts, and the digest is the root of these.
//!
//! A record carries the lowest version that can be understood: an older SDK reports the version instead of taking the
//! record for damaged. Version 1 has identities, updates without masks and rounds that are done; version 2 has
//! sessions of secure aggregation; version 3 has ledgers of privacy; version 4 has residuals of codecs; version 5 has
//! personalized models; version 6 has updates trained ahead of rounds; version 7 has control variates; version 8 has
//! updates, and published models, behind the digest; version 9 has updates that are sent in parts.

use std::sync::Arc;

use secure_agg::upload::PartTree;
use serde::{Deserialize, Serialize};
use wire::{Digest, TaskId};
use zeroize::Zeroizing;

use crate::identity::{Certified, SigningKey};
use crate::journal::JournalError;
use recipe::digest::sha256;

mod batch;
mod control;
mod held;
mod json;
mod local_state;
mod model;
mod personalized;
mod privacy;
mod round;
mod traffic;
mod training;

pub(in crate::participant) use control::{Control, ControlRecord};
pub(in crate::participant) use held::{HeldRecord, HeldUpdateId, encode_nothing_held};
pub(in crate::participant) use local_state::LocalState;
pub(crate) use model::ModelRecord;
pub(in crate::participant) use model::{encode_model, encode_no_model};
pub(crate) use personalized::{PersonalizedRecord, encode_personalized};
pub(in crate::participant) use privacy::{encode_account, restore};
pub(in crate::participant) use round::{Pending, RoundCounters, RoundRecord, RoundState, encode_done, encode_session};
pub(in crate::participant) use training::{Call, TrainingId, TrainingRecord, encode_no_training};

/// Name of the record of the participant's identity.
pub const IDENTITY: &str = "identity";
/// Name of the record of the key for the next certificate, written before the request. The identity takes it over with
/// the certificate.
pub const NEXT_KEY: &str = "next-key";
/// Name of the record of the round: a session's keys, a pending update, or that the round is done.
pub const ROUND: &str = "round";

/// Name of the record of an update trained ahead of rounds.
pub const UPDATE: &str = "update";

/// Name of the record of the privacy ledgers.
pub const PRIVACY: &str = "privacy";

/// Name of the record of where models come from.
pub const PROVENANCE: &str = "provenance";

/// Name of the record of the participant's fixed batch.
pub const BATCH: &str = "batch";

/// Name of the record of the list of published models.
pub const MODELS: &str = "models";

/// Name of the record of traffic.
pub const TRAFFIC: &str = "traffic";

/// Name of the record of refusals.
pub const REFUSALS: &str = "refusals";

/// Name of the record of a training in progress.
pub const TRAINING: &str = "training";

const MAGIC: &[u8; 16] = b"tributary record";
/// The newest version that is read and written.
const VERSION: u16 = 9;
/// Version of records without sessions.
const PLAIN: u16 = 1;
/// Version of records with a session.
const SESSION: u16 = 2;
/// Version of the privacy ledgers.
const LEDGER: u16 = 3;
/// Version of rounds with a residual.
const RESIDUAL: u16 = 4;
/// Version of personalized models, and of rounds with one.
const OWN: u16 = 5;
/// Version of updates trained ahead of rounds.
const HELD: u16 = 6;
/// Version of control variates.
const CONTROL: u16 = 7;
/// Version of pending updates, stored behind the digest.
const BEHIND: u16 = 8;
/// Version of pending updates that are sent in parts.
const PARTS: u16 = 9;
/// From version 8 on: length (u64) and digest of the bytes behind the digest.
const BEHIND_BYTES: usize = 8 + 32;
const MAX_HEADER_BYTES: usize = 1 << 20;

/// Name of the record of a task's personal tensors.
#[must_use]
pub fn personal(task: TaskId) -> String {
    format!("personal-{task}")
}

/// Name of the record of a task's personalized model.
#[must_use]
pub fn own(task: TaskId) -> String {
    format!("own-{task}")
}

/// Name of the record of a task's published model.
#[must_use]
pub fn model(task: TaskId) -> String {
    format!("model-{task}")
}

/// Name of the record of a task's control variate.
#[must_use]
pub fn control(task: TaskId) -> String {
    format!("control-{task}")
}

/// Name of the record of a task's codec residual.
#[must_use]
pub fn residual(task: TaskId) -> String {
    format!("residual-{task}")
}

pub(in crate::participant) struct IdentityRecord {
    pub(in crate::participant) key: Arc<SigningKey>,
    /// `None` until the key is enrolled.
    pub(in crate::participant) certified: Option<Certified>,
    /// SHA-256 of the token used to enrol, also after renewals; absent in older records.
    pub(in crate::participant) token_sha256: Option<Digest>,
}

#[derive(Serialize, Deserialize)]
struct IdentityHeader {
    key_bytes: usize,
    certified: Option<Certified>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    token_sha256: Option<Digest>,
}

impl IdentityRecord {
    pub(in crate::participant) fn encode(&self) -> Result<Zeroizing<Vec<u8>>, JournalError> {
        let key = self.key.expose_pkcs8();
        let (certified, token_sha256) = (self.certified.clone(), self.token_sha256);
        encode(IDENTITY, PLAIN, &IdentityHeader { key_bytes: key.len(), certified, token_sha256 }, &[key])
    }

    pub(in crate::participant) fn decode(record: &[u8]) -> Result<Self, JournalError> {
        let (header, mut parts): (IdentityHeader, _) = decode(IDENTITY, record)?;
        let key = parts.take(header.key_bytes)?;
        parts.end()?;
        let key = SigningKey::from_pkcs8(key).map_err(|error| JournalError::corrupt(IDENTITY, error))?;
        Ok(Self { key: Arc::new(key), certified: header.certified, token_sha256: header.token_sha256 })
    }
}

fn encode(
    name: &str,
    version: u16,
    header: &impl Serialize,
    parts: &[&[u8]],
) -> Result<Zeroizing<Vec<u8>>, JournalError> {
    encode_before(name, version, &[], header, parts)
}

/// Encodes a record up to its digest; a body of this length and digest follows.
fn encode_before_body(
    name: &str,
    version: u16,
    length: usize,
    digest: Digest,
    header: &impl Serialize,
    parts: &[&[u8]],
) -> Result<Zeroizing<Vec<u8>>, JournalError> {
    let mut behind = [0; BEHIND_BYTES];
    behind[..8].copy_from_slice(&(length as u64).to_le_bytes());
    behind[8..].copy_from_slice(&digest.0);
    encode_before(name, version, &behind, header, parts)
}

fn encode_before(
    name: &str,
    version: u16,
    behind: &[u8],
    header: &impl Serialize,
    parts: &[&[u8]],
) -> Result<Zeroizing<Vec<u8>>, JournalError> {
    let header = serde_json::to_vec(header).map_err(|error| JournalError::corrupt(name, error))?;
    let length = u32::try_from(header.len()).map_err(|error| JournalError::corrupt(name, error))?;
    let (version, length) = (version.to_le_bytes(), length.to_le_bytes());
    let content = [&MAGIC[..], &version, behind, &length, &header];
    let content = content.iter().chain(parts);
    // Allocated at its exact size: a growing vector would leave copies of keys in memory.
    let bytes = content.clone().map(|part| part.len()).sum::<usize>() + 32;
    let mut record = Zeroizing::new(Vec::with_capacity(bytes));
    for part in content {
        record.extend_from_slice(part);
    }
    let digest = sha256(&record);
    record.extend_from_slice(&digest.0);
    Ok(record)
}

/// Numbers as a part of a record.
fn bytes_of(values: &[f32]) -> Zeroizing<Vec<u8>> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(4 * values.len()));
    values.iter().for_each(|value| bytes.extend_from_slice(&value.to_le_bytes()));
    bytes
}

fn decode<'a, H: for<'de> Deserialize<'de>>(
    name: &'static str,
    record: &'a [u8],
) -> Result<(H, Parts<'a>), JournalError> {
    let corrupt = |detail: &str| JournalError::corrupt(name, detail);
    let changed = || corrupt("its bytes are not those that were written");
    let rest = record.strip_prefix(MAGIC).ok_or_else(|| corrupt("it does not begin like a record"))?;
    let (version, rest) = rest.split_first_chunk().ok_or_else(|| corrupt("it is cut off"))?;
    let version = u16::from_le_bytes(*version);
    if version > VERSION {
        return Err(JournalError::TooNew { name: name.to_owned(), version, newest: VERSION });
    }
    let mut begins = MAGIC.len() + 2;
    let (mut record, mut body, mut tree, mut body_digest) = (record, None, None, None);
    if version >= BEHIND {
        let (length, rest) = rest.split_first_chunk().ok_or_else(|| corrupt("it is cut off"))?;
        let digest = rest.first_chunk().ok_or_else(|| corrupt("it is cut off"))?;
        let length = usize::try_from(u64::from_le_bytes(*length)).ok();
        let end = length.and_then(|length| record.len().checked_sub(length)).ok_or_else(|| corrupt("it is cut off"))?;
        let (before, behind) = record.split_at(end);
        let found = if version >= PARTS {
            let parts = tree.insert(PartTree::of(behind));
            Digest(parts.name())
        } else {
            sha256(behind)
        };
        if found != Digest(*digest) {
            return Err(changed());
        }
        (record, body, body_digest) = (before, Some(behind), Some(found));
        begins += BEHIND_BYTES;
    }
    let (content, digest) = record.split_last_chunk().ok_or_else(|| corrupt("it is cut off"))?;
    if sha256(content) != Digest(*digest) {
        return Err(changed());
    }
    let mut parts = Parts {
        name,
        rest: content.get(begins..).unwrap_or_default(),
        body,
        body_digest,
        tree: tree.filter(PartTree::is_parted).map(Arc::new),
    };
    let length = parts.take(4)?.first_chunk().map_or(usize::MAX, |bytes| u32::from_le_bytes(*bytes) as usize);
    if length > MAX_HEADER_BYTES {
        return Err(corrupt("its header is too long"));
    }
    let header = serde_json::from_slice(parts.take(length)?).map_err(|error| JournalError::corrupt(name, error))?;
    Ok((header, parts))
}

/// The parts of a record that are not read yet.
struct Parts<'a> {
    name: &'static str,
    rest: &'a [u8],
    /// The bytes behind the digest.
    body: Option<&'a [u8]>,
    /// Of the bytes behind the digest.
    body_digest: Option<Digest>,
    /// Their parts, if they are sent in parts.
    tree: Option<Arc<PartTree>>,
}

impl<'a> Parts<'a> {
    fn take(&mut self, bytes: usize) -> Result<&'a [u8], JournalError> {
        let (part, rest) =
            self.rest.split_at_checked(bytes).ok_or_else(|| JournalError::corrupt(self.name, "it is cut off"))?;
        self.rest = rest;
        Ok(part)
    }

    /// The pending update: behind the digest or, in older records, the next part.
    fn body(&mut self, bytes: usize) -> Result<&'a [u8], JournalError> {
        match self.body.take() {
            Some(body) if body.len() == bytes => Ok(body),
            Some(_) => Err(JournalError::corrupt(self.name, "the update in it has another length")),
            None => self.take(bytes),
        }
    }

    /// A file behind the digest, and its own.
    fn file(&mut self) -> Result<(Digest, &'a [u8]), JournalError> {
        let file = self.body_digest.zip(self.body.take());
        file.ok_or_else(|| JournalError::corrupt(self.name, "there is no file in it"))
    }

    fn secret(&mut self, bytes: usize) -> Result<Zeroizing<Vec<u8>>, JournalError> {
        self.take(bytes).map(|part| Zeroizing::new(part.to_vec()))
    }

    /// This many numbers, in the form of [`bytes_of`].
    fn numbers(&mut self, count: usize) -> Result<Zeroizing<Vec<f32>>, JournalError> {
        let bytes = count.checked_mul(4).ok_or_else(|| JournalError::corrupt(self.name, "it is cut off"))?;
        let bytes = self.take(bytes)?.as_chunks::<4>().0;
        let mut values = Zeroizing::new(Vec::with_capacity(count));
        values.extend(bytes.iter().map(|bytes| f32::from_le_bytes(*bytes)));
        Ok(values)
    }

    fn end(&self) -> Result<(), JournalError> {
        if self.rest.is_empty() && self.body.is_none() {
            Ok(())
        } else {
            Err(JournalError::corrupt(self.name, "something is appended to it"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_comes_back() {
        let key = Arc::new(SigningKey::generate().unwrap());
        let record = IdentityRecord { key: Arc::clone(&key), certified: None, token_sha256: None }.encode().unwrap();
        let back = IdentityRecord::decode(&record).unwrap();
        assert_eq!(back.key.expose_pkcs8(), key.expose_pkcs8());
        assert!(back.certified.is_none());
    }
}
