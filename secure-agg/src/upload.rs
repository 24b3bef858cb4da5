//! The bulk body of a masked input: the packed model vector, then the packed scalars, and its signed digest.
//!
//! The digest is the root of a tree of two levels, over parts of 8 MiB ([`PartTree`]), so that an upload can be resumed, checked and stored
//! part by part: `SHA-256(enc(P) || enc("masked-input") || u64be(bytes) || SHA-256(part_0) || SHA-256(part_1) || …)`.
//!
//! Participants of the first version of the contract send a body of any length in one request, and sign the same over chunks of 16 MiB
//! ([`digest`]). Up to 8 MiB both digests are equal. Beyond, the number of digests differs, so the roots differ for all bodies.

use ring::digest::{Context, SHA256};

use crate::crypto::suite::PROTOCOL;
use crate::crypto::transcript::{Digest, Transcript, sha256};
use crate::packing::packed_len;
use crate::params::{InvalidConfig, SessionConfig};

/// Bytes of a chunk of the first version; the last one of a body may be shorter.
pub const CHUNK_BYTES: usize = 16 << 20;
/// Bytes of a part; the last one of a body may be shorter.
pub const PART_BYTES: usize = 8 << 20;

const LABEL: &str = "masked-input";

/// Length of a session's body in bytes: packed model, then packed scalars, each starting on a byte.
///
/// # Errors
/// [`InvalidConfig`] if a modulus is not supported.
pub fn body_bytes(config: &SessionConfig) -> Result<u64, InvalidConfig> {
    let bytes = |words: u64, modulus| packed_len(usize::try_from(words).unwrap_or(usize::MAX), modulus) as u64;
    let model = bytes(config.model.words, config.model.modulus()?);
    Ok(model.saturating_add(bytes(config.scalars.words, config.scalars.modulus()?)))
}

/// The digests of a body's parts, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartTree {
    bytes: u64,
    parts: Vec<Digest>,
}

impl PartTree {
    /// Hashes a body in memory.
    #[must_use]
    pub fn of(body: &[u8]) -> Self {
        Self { bytes: body.len() as u64, parts: body.chunks(PART_BYTES).map(sha256).collect() }
    }

    /// The tree of a body of `bytes` bytes with these part digests; `None` if the number of parts is wrong.
    #[must_use]
    pub fn new(bytes: u64, parts: Vec<Digest>) -> Option<Self> {
        (bytes.div_ceil(PART_BYTES as u64) == parts.len() as u64).then_some(Self { bytes, parts })
    }

    /// The digest that a participant signs and that identifies the body.
    #[must_use]
    pub fn root(&self) -> Digest {
        root(self.bytes, &self.parts)
    }

    /// Whether the body is sent in parts, which is the case if it has more than one.
    #[must_use]
    pub fn is_parted(&self) -> bool {
        self.parts.len() > 1
    }

    /// The digest that identifies the body outside of a session: the root if it is sent in parts, else its SHA-256.
    #[must_use]
    pub fn name(&self) -> Digest {
        match &self.parts[..] {
            [] => sha256(&[]),
            [whole] => *whole,
            _ => self.root(),
        }
    }

    /// Length of the body.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// SHA-256 of each part.
    #[must_use]
    pub fn parts(&self) -> &[Digest] {
        &self.parts
    }

    /// Digest and length of a part; `None` if the number is out of range.
    #[must_use]
    pub fn part(&self, number: u32) -> Option<(Digest, u64)> {
        let digest = *self.parts.get(number as usize)?;
        let begin = u64::from(number) * PART_BYTES as u64;
        Some((digest, (self.bytes - begin).min(PART_BYTES as u64)))
    }

    /// The bytes whose SHA-256 is the root.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut encoded = prefix();
        encoded.extend_from_slice(&self.bytes.to_be_bytes());
        encoded.extend(self.parts.iter().flatten());
        encoded
    }

    /// Decodes the output of [`Self::encode`]; `None` for any other bytes.
    #[must_use]
    pub fn decode(encoded: &[u8]) -> Option<Self> {
        let (bytes, parts) = encoded.strip_prefix(&*prefix())?.split_first_chunk()?;
        let (parts, rest) = parts.as_chunks::<32>();
        Self::new(u64::from_be_bytes(*bytes), parts.to_vec()).filter(|_| rest.is_empty())
    }
}

/// The hashed bytes before the length and the digests: `enc(P) || enc("masked-input")`, each with its length (u32, big-endian).
fn prefix() -> Vec<u8> {
    let mut encoded = Vec::new();
    for field in [PROTOCOL, LABEL.as_bytes()] {
        encoded.extend_from_slice(&u32::try_from(field.len()).unwrap_or(u32::MAX).to_be_bytes());
        encoded.extend_from_slice(field);
    }
    encoded
}

/// The digest of a body in memory, over chunks of the first version.
#[must_use]
pub fn digest(body: &[u8]) -> Digest {
    let chunks: Vec<Digest> = body.chunks(CHUNK_BYTES).map(sha256).collect();
    root(body.len() as u64, &chunks)
}

/// The digest of a body of `bytes` bytes with these digests of its chunks or parts, in order.
#[must_use]
pub fn root(bytes: u64, chunks: &[Digest]) -> Digest {
    chunks.iter().fold(Transcript::labelled(LABEL).u64(bytes), |tree, chunk| tree.raw(chunk)).finish()
}

/// Computes the digest of the first version for a body that arrives in pieces of any size.
pub struct BodyDigest {
    chunk: Context,
    in_chunk: usize,
    bytes: u64,
    chunks: Vec<Digest>,
}

impl Default for BodyDigest {
    fn default() -> Self {
        Self { chunk: Context::new(&SHA256), in_chunk: 0, bytes: 0, chunks: Vec::new() }
    }
}

impl BodyDigest {
    /// Takes the next bytes.
    pub fn push(&mut self, mut piece: &[u8]) {
        self.bytes += piece.len() as u64;
        while !piece.is_empty() {
            let (now, later) = piece.split_at(piece.len().min(CHUNK_BYTES - self.in_chunk));
            self.chunk.update(now);
            self.in_chunk += now.len();
            piece = later;
            if self.in_chunk == CHUNK_BYTES {
                self.close_chunk();
            }
        }
    }

    /// The digest of all pushed bytes.
    #[must_use]
    pub fn finish(mut self) -> Digest {
        if self.in_chunk > 0 {
            self.close_chunk();
        }
        root(self.bytes, &self.chunks)
    }

    fn close_chunk(&mut self) {
        let done = std::mem::replace(&mut self.chunk, Context::new(&SHA256)).finish();
        let mut digest = [0; 32];
        digest.copy_from_slice(done.as_ref());
        self.chunks.push(digest);
        self.in_chunk = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_any_size_give_the_digest_of_the_whole() {
        let body: Vec<u8> = (0..CHUNK_BYTES + 1000).map(|i| u8::try_from(i % 251).unwrap()).collect();
        for piece in [7_000_001, CHUNK_BYTES, CHUNK_BYTES + 1000] {
            let mut streamed = BodyDigest::default();
            body.chunks(piece).for_each(|piece| streamed.push(piece));
            assert_eq!(streamed.finish(), digest(&body));
        }
        assert_eq!(BodyDigest::default().finish(), digest(&[]));
        assert_ne!(digest(&body[..CHUNK_BYTES]), digest(&body[..CHUNK_BYTES - 1]));
    }

    #[test]
    fn the_root_is_the_digest_of_what_is_encoded() {
        let body: Vec<u8> = (0..2 * PART_BYTES + 1000).map(|i| u8::try_from(i % 249).unwrap()).collect();
        for length in [0, 1, PART_BYTES, PART_BYTES + 1, 2 * PART_BYTES, 2 * PART_BYTES + 1000] {
            let (body, tree) = (&body[..length], PartTree::of(&body[..length]));
            let encoded = tree.encode();
            assert_eq!(tree.root(), sha256(&encoded));
            assert_eq!(PartTree::decode(&encoded), Some(tree.clone()));
            assert_eq!(tree.root() == digest(body), length <= PART_BYTES, "{length}");
            assert_eq!(tree.parts().len(), length.div_ceil(PART_BYTES));
            let lengths: u64 = (0..).map_while(|number| tree.part(number)).map(|(_, length)| length).sum();
            assert_eq!(lengths, length as u64);
        }
    }

    #[test]
    fn only_a_whole_tree_is_read() {
        let tree = PartTree::new(PART_BYTES as u64 + 1, vec![[1; 32], [2; 32]]).unwrap();
        let encoded = tree.encode();
        for length in 0..encoded.len() {
            assert_eq!(PartTree::decode(&encoded[..length]), None, "{length}");
        }
        assert_eq!(PartTree::decode(&[&encoded[..], &[3; 32]].concat()), None);
        assert_eq!(PartTree::new(PART_BYTES as u64, vec![[1; 32], [2; 32]]), None);
        assert_eq!(PartTree::new(u64::MAX, vec![[1; 32]]), None);
        assert_eq!(tree.part(1), Some(([2; 32], 1)));
        assert_eq!(tree.part(2), None);
    }
}
