//! The records a participant keeps in its journal, and how to read every version of them ever written.
//!
//! A record is `"tributary record"`, the version (u16), the length of a JSON header (u32), the header, the binary parts
//! whose lengths the header gives, and SHA-256 of all that; numbers are little-endian. Fields are added to headers, never
//! renamed or removed; `tests/snapshots` holds a record of every version.

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use wire::{Digest, ParticipantId, TaskId, Timestamp};
use zeroize::Zeroizing;

use crate::identity::{Certified, SigningKey};
use crate::journal::JournalError;
use crate::pipeline::sha256;
use crate::transport::Place;

/// Name of the record that says who the participant is.
pub const IDENTITY: &str = "identity";
/// Name of the record of the update that may be on its way.
pub const ROUND: &str = "round";

const MAGIC: &[u8; 16] = b"tributary record";
const VERSION: u16 = 1;
const MAX_HEADER_BYTES: usize = 1 << 20;

/// Name of the record of a task's personal tensors.
#[must_use]
pub fn personal(task: TaskId) -> String {
    format!("personal-{task}")
}

/// Who the participant is.
pub(super) struct IdentityRecord {
    pub(super) key: Arc<SigningKey>,
    /// Absent between making the key and enrolling it.
    pub(super) certified: Option<Certified>,
}

#[derive(Serialize, Deserialize)]
struct IdentityHeader {
    key_bytes: usize,
    certified: Option<CertifiedHeader>,
}

#[derive(Serialize, Deserialize)]
struct CertifiedHeader {
    participant: ParticipantId,
    name: String,
    certificate_pem: String,
    expires_at: Timestamp,
    renew_at: Timestamp,
}

impl IdentityRecord {
    pub(super) fn encode(&self) -> Result<Zeroizing<Vec<u8>>, JournalError> {
        let certified = self.certified.as_ref().map(|certified| CertifiedHeader {
            participant: certified.participant,
            name: certified.name.clone(),
            certificate_pem: certified.certificate_pem.clone(),
            expires_at: certified.expires_at,
            renew_at: certified.renew_at,
        });
        let key = self.key.expose_pkcs8();
        encode(IDENTITY, &IdentityHeader { key_bytes: key.len(), certified }, &[key])
    }

    pub(super) fn decode(record: &[u8]) -> Result<Self, JournalError> {
        let (header, mut parts): (IdentityHeader, _) = decode(IDENTITY, record)?;
        let key = parts.take(header.key_bytes)?;
        parts.end()?;
        let key = SigningKey::from_pkcs8(key).map_err(|error| JournalError::corrupt(IDENTITY, error))?;
        let certified = header.certified.map(|certified| Certified {
            participant: certified.participant,
            name: certified.name,
            certificate_pem: certified.certificate_pem,
            expires_at: certified.expires_at,
            renew_at: certified.renew_at,
        });
        Ok(Self { key: Arc::new(key), certified })
    }
}

/// The last round this participant had anything to send for.
pub(super) enum RoundRecord {
    /// An update that must be sent, and resent, as exactly these bytes.
    Pending(Pending),
    /// It was reported, or the round went on without it. This place is never taken again.
    Done(Place),
}

/// An update on its way.
pub(super) struct Pending {
    pub(super) place: Place,
    pub(super) sha256: Digest,
    pub(super) body: Bytes,
    /// The personal tensors after the same training: they take effect when the round is done with.
    pub(super) personal: Option<Zeroizing<Vec<u8>>>,
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
enum RoundHeader {
    Pending { place: Place, sha256: Digest, body_bytes: usize, personal_bytes: Option<usize> },
    Done { place: Place },
}

impl RoundRecord {
    pub(super) fn encode(&self) -> Result<Zeroizing<Vec<u8>>, JournalError> {
        match self {
            Self::Done(place) => encode(ROUND, &RoundHeader::Done { place: *place }, &[]),
            Self::Pending(pending) => pending.encode(),
        }
    }

    pub(super) fn decode(record: &[u8]) -> Result<Self, JournalError> {
        let (header, mut parts) = decode(ROUND, record)?;
        match header {
            RoundHeader::Done { place } => {
                parts.end()?;
                Ok(Self::Done(place))
            }
            RoundHeader::Pending { place, sha256, body_bytes, personal_bytes } => {
                let body = Bytes::copy_from_slice(parts.take(body_bytes)?);
                let personal = personal_bytes.map(|bytes| parts.take(bytes)).transpose()?;
                let personal = personal.map(|bytes| Zeroizing::new(bytes.to_vec()));
                parts.end()?;
                Ok(Self::Pending(Pending { place, sha256, body, personal }))
            }
        }
    }
}

impl Pending {
    pub(super) fn encode(&self) -> Result<Zeroizing<Vec<u8>>, JournalError> {
        let personal = self.personal.as_ref().map(|personal| personal.as_slice());
        let header = RoundHeader::Pending {
            place: self.place,
            sha256: self.sha256,
            body_bytes: self.body.len(),
            personal_bytes: personal.map(<[u8]>::len),
        };
        encode(ROUND, &header, &[&self.body, personal.unwrap_or_default()])
    }
}

fn encode(name: &str, header: &impl Serialize, parts: &[&[u8]]) -> Result<Zeroizing<Vec<u8>>, JournalError> {
    let header = serde_json::to_vec(header).map_err(|error| JournalError::corrupt(name, error))?;
    let length = u32::try_from(header.len()).map_err(|error| JournalError::corrupt(name, error))?;
    let parts_bytes: usize = parts.iter().map(|part| part.len()).sum();
    // The exact size at once: a growing vector would leave copies of keys behind.
    let mut record = Zeroizing::new(Vec::with_capacity(MAGIC.len() + 2 + 4 + header.len() + parts_bytes + 32));
    record.extend_from_slice(MAGIC);
    record.extend_from_slice(&VERSION.to_le_bytes());
    record.extend_from_slice(&length.to_le_bytes());
    record.extend_from_slice(&header);
    for part in parts {
        record.extend_from_slice(part);
    }
    let digest = sha256(&record);
    record.extend_from_slice(&digest.0);
    Ok(record)
}

fn decode<'a, H: for<'de> Deserialize<'de>>(
    name: &'static str,
    record: &'a [u8],
) -> Result<(H, Parts<'a>), JournalError> {
    let corrupt = |detail: &str| JournalError::corrupt(name, detail);
    let rest = record.strip_prefix(MAGIC).ok_or_else(|| corrupt("it does not begin like a record"))?;
    let (version, _) = rest.split_first_chunk().ok_or_else(|| corrupt("it is cut off"))?;
    let version = u16::from_le_bytes(*version);
    if version > VERSION {
        return Err(JournalError::TooNew { name: name.to_owned(), version, newest: VERSION });
    }
    let (content, digest) = record.split_last_chunk().ok_or_else(|| corrupt("it is cut off"))?;
    if sha256(content) != Digest(*digest) {
        return Err(corrupt("its bytes are not those that were written"));
    }
    let mut parts = Parts { name, rest: content.get(MAGIC.len() + 2..).unwrap_or_default() };
    let length = parts.take(4)?.first_chunk().map_or(usize::MAX, |bytes| u32::from_le_bytes(*bytes) as usize);
    if length > MAX_HEADER_BYTES {
        return Err(corrupt("its header is too long"));
    }
    let header = serde_json::from_slice(parts.take(length)?).map_err(|error| JournalError::corrupt(name, error))?;
    Ok((header, parts))
}

/// The rest of a record's content.
struct Parts<'a> {
    name: &'static str,
    rest: &'a [u8],
}

impl<'a> Parts<'a> {
    fn take(&mut self, bytes: usize) -> Result<&'a [u8], JournalError> {
        let (part, rest) =
            self.rest.split_at_checked(bytes).ok_or_else(|| JournalError::corrupt(self.name, "it is cut off"))?;
        self.rest = rest;
        Ok(part)
    }

    fn end(&self) -> Result<(), JournalError> {
        if self.rest.is_empty() { Ok(()) } else { Err(JournalError::corrupt(self.name, "something is appended to it")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> Place {
        Place { task: "00000000-0000-0000-0000-000000000001".parse().unwrap(), round: 3, attempt: 1 }
    }

    fn pending() -> Pending {
        let body = Bytes::from_static(b"masked input");
        Pending { place: place(), sha256: sha256(&body), body, personal: Some(Zeroizing::new(b"stays".to_vec())) }
    }

    #[test]
    fn records_come_back() {
        let record = RoundRecord::Pending(pending()).encode().unwrap();
        let RoundRecord::Pending(back) = RoundRecord::decode(&record).unwrap() else { panic!("another record") };
        assert_eq!((back.place, &back.body[..]), (place(), &b"masked input"[..]));
        assert_eq!(back.personal.unwrap().as_slice(), b"stays");

        let key = Arc::new(SigningKey::generate().unwrap());
        let record = IdentityRecord { key: Arc::clone(&key), certified: None }.encode().unwrap();
        let back = IdentityRecord::decode(&record).unwrap();
        assert_eq!(back.key.expose_pkcs8(), key.expose_pkcs8());
        assert!(back.certified.is_none());
    }

    #[test]
    fn every_damage_is_found() {
        let record = RoundRecord::Pending(pending()).encode().unwrap();
        for length in 0..record.len() {
            assert!(RoundRecord::decode(&record[..length]).is_err(), "cut at {length}");
        }
        for position in 0..record.len() {
            let mut damaged = record.to_vec();
            damaged[position] ^= 1;
            assert!(RoundRecord::decode(&damaged).is_err(), "bit flipped at {position}");
        }
        let error = RoundRecord::decode(&[&record[..], b"x"].concat()).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("restore it from a backup"), "{error}");
    }

    #[test]
    fn a_record_of_a_newer_sdk_is_not_taken_for_damage() {
        let mut record = RoundRecord::Done(place()).encode().unwrap().to_vec();
        record[MAGIC.len()] = 9;
        let error = RoundRecord::decode(&record).map(|_| ()).unwrap_err();
        assert!(matches!(error, JournalError::TooNew { version: 9, newest: 1, .. }), "{error}");
    }
}
