//! The bulk body of a masked input: the packed model vector, then the packed scalars, and the digest that is signed.
//!
//! The digest is a two-level tree over chunks of 16 MiB, so an upload can be resumed and checked chunk by chunk:
//! `SHA-256(enc(P) || enc("masked-input") || u64be(bytes) || SHA-256(chunk_0) || SHA-256(chunk_1) || …)`.

use ring::digest::{Context, SHA256};

use crate::crypto::transcript::{Digest, Transcript, sha256};
use crate::packing::packed_len;
use crate::params::{InvalidConfig, SessionConfig};

/// Bytes of a chunk; the last one of a body may be shorter.
pub const CHUNK_BYTES: usize = 16 << 20;

/// Length of a session's body in bytes: packed model, then packed scalars, each starting on a byte.
///
/// # Errors
/// [`InvalidConfig`] if a modulus is not supported.
pub fn body_bytes(config: &SessionConfig) -> Result<u64, InvalidConfig> {
    let bytes = |words: u64, modulus| packed_len(usize::try_from(words).unwrap_or(usize::MAX), modulus) as u64;
    let model = bytes(config.model.words, config.model.modulus()?);
    Ok(model.saturating_add(bytes(config.scalars.words, config.scalars.modulus()?)))
}

/// The digest of a body in memory.
#[must_use]
pub fn digest(body: &[u8]) -> Digest {
    let chunks: Vec<Digest> = body.chunks(CHUNK_BYTES).map(sha256).collect();
    root(body.len() as u64, &chunks)
}

/// The digest of a body of `bytes` bytes with these chunk digests, in order.
#[must_use]
pub fn root(bytes: u64, chunks: &[Digest]) -> Digest {
    chunks.iter().fold(Transcript::labelled("masked-input").u64(bytes), |tree, chunk| tree.raw(chunk)).finish()
}

/// Computes the digest of a body that arrives in pieces of any size.
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
}
