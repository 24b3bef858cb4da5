//! Entries, the chain of their hashes, its signed heads, and the lines of an export.

use federation::event::Event;
use federation::id::Digest;
use federation::time::Timestamp;
use ring::digest::{Context, SHA256};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use serde::{Deserialize, Serialize};

use super::finding::Finding;
use super::hex::{AuditKey, Hex};

/// Version of the export format.
pub const FORMAT: u32 = 1;
const ENTRY: &[u8] = b"tributary audit entry 1\0";
const HEAD: &[u8] = b"tributary audit head 1\0";

/// An event in its place in the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Entry {
    /// Counts from 1, without gaps.
    pub position: u64,
    #[serde(flatten)]
    pub event: Event,
    /// Over this entry and the hash before it.
    pub hash: Digest,
}

/// An entry as the API shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EventView {
    /// `at` in RFC 3339, UTC, to the second.
    pub time: String,
    #[serde(flatten)]
    pub entry: Entry,
}

impl From<Entry> for EventView {
    fn from(entry: Entry) -> Self {
        Self { time: entry.event.at.to_string(), entry }
    }
}

/// A signed statement that the log had this hash at this position. Whoever keeps one notices if the entries up to there are
/// changed, removed or reordered later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Head {
    /// Number of entries so far.
    pub position: u64,
    /// That of the entry at the position.
    pub hash: Digest,
    /// When it was signed, in milliseconds since 1970 (UTC).
    pub at: Timestamp,
    /// The Ed25519 key that signed it: 64 hexadecimal digits.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub key: AuditKey,
    /// 128 hexadecimal digits.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub signature: Hex<64>,
}

impl Head {
    /// Signs a head for the end of a log.
    #[must_use]
    pub fn sign(end: ChainEnd, at: Timestamp, pair: &Ed25519KeyPair) -> Self {
        let (mut key, mut signature) = ([0; 32], [0; 64]);
        key.copy_from_slice(pair.public_key().as_ref());
        signature.copy_from_slice(pair.sign(&signed(end, at)).as_ref());
        Self { position: end.position, hash: end.hash, at, key: Hex(key), signature: Hex(signature) }
    }

    /// Whether the key that it names signed the head.
    #[must_use]
    pub fn is_signed(&self) -> bool {
        let end = ChainEnd { position: self.position, hash: self.hash };
        UnparsedPublicKey::new(&ED25519, self.key.0).verify(&signed(end, self.at), &self.signature.0).is_ok()
    }
}

fn signed(end: ChainEnd, at: Timestamp) -> Vec<u8> {
    [HEAD, &end.position.to_be_bytes(), &end.hash.0, &at.0.to_be_bytes()].concat()
}

/// The public key that signs heads, and the newest one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AuditKeyView {
    /// Ed25519: 64 hexadecimal digits.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub key: AuditKey,
    /// Absent if nothing was signed yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<Head>,
}

/// End of a hash chain: position and hash of its last entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainEnd {
    /// Number of entries so far.
    pub position: u64,
    /// Hash of the last entry; zeros before the first.
    pub hash: Digest,
}

impl Default for ChainEnd {
    fn default() -> Self {
        Self { position: 0, hash: Digest([0; 32]) }
    }
}

impl ChainEnd {
    /// Extends the chain by one event.
    #[must_use]
    pub fn and(self, event: &Event) -> Self {
        let position = self.position.saturating_add(1);
        let mut context = Context::new(&SHA256);
        context.update(ENTRY);
        context.update(&self.hash.0);
        context.update(&position.to_be_bytes());
        // Ids, numbers and text: this cannot fail.
        context.update(&serde_json::to_vec(event).unwrap_or_default());
        let mut hash = [0; 32];
        hash.copy_from_slice(context.finish().as_ref());
        Self { position, hash: Digest(hash) }
    }

    /// Extends the chain by an entry, after checking that it is the next one.
    ///
    /// # Errors
    /// [`Finding`] if another entry is in its place, or if this entry or its predecessor was changed.
    pub fn check(self, entry: &Entry) -> Result<Self, Finding> {
        let expected = self.position.saturating_add(1);
        if entry.position > expected {
            return Err(Finding::Missing { expected, found: entry.position });
        }
        if entry.position < expected {
            return Err(Finding::Misplaced { expected, found: entry.position });
        }
        let next = self.and(&entry.event);
        match next.hash == entry.hash {
            true => Ok(next),
            false if self.position == 0 => Err(Finding::Changed(expected)),
            false => Err(Finding::Unlinked(expected)),
        }
    }
}

/// The first line of an export.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// [`FORMAT`].
    pub format: u32,
    /// The key that signed the head: 64 hexadecimal digits.
    pub key: AuditKey,
}

/// One line of an export.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// The first one.
    Header(Header),
    Entry(Entry),
    /// The last one.
    Head(Head),
}

impl Line {
    /// The line's text, with a newline.
    #[must_use]
    pub fn text(&self) -> String {
        // Ids, numbers and text: this cannot fail.
        serde_json::to_string(self).unwrap_or_default() + "\n"
    }
}
