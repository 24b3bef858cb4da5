//! Gzip (RFC 1952) of pieces shared by many streams.
//!
//! A piece is compressed independently: it refers to no earlier data, and ends at a byte boundary. So it may follow any piece of any
//! stream, and a reader can decompress it completely on arrival. Only header and trailer belong to a single stream.

use std::sync::Arc;

use bytes::Bytes;
use flate2::{Compress, Compression, Crc, FlushCompress};

/// Deflate, no name, no time, of an unknown system.
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
/// The last block of a stream, always empty.
const LAST_BLOCK: [u8; 2] = [3, 0];

/// A text in deflate blocks (RFC 1951), excluding the last block of a stream. Clones share the bytes.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    blocks: Bytes,
    /// CRC-32 of the text, with its length.
    checksum: Arc<Crc>,
}

impl Piece {
    /// Compresses a text: some milliseconds for a megabyte.
    pub(crate) fn compressed(text: &[u8]) -> Self {
        Self::new(text, deflated(text).unwrap_or_else(|| stored(text)))
    }

    /// An uncompressed text: compressing a short one is not worthwhile.
    pub(crate) fn stored(text: &[u8]) -> Self {
        Self::new(text, stored(text))
    }

    fn new(text: &[u8], blocks: Vec<u8>) -> Self {
        let mut checksum = Crc::new();
        checksum.update(text);
        Self { blocks: blocks.into(), checksum: Arc::new(checksum) }
    }
}

/// The compressed blocks of a text; `None` unless they are shorter than the text.
fn deflated(text: &[u8]) -> Option<Vec<u8>> {
    let mut blocks = Vec::with_capacity(text.len());
    let mut deflate = Compress::new(Compression::fast(), false);
    deflate.compress_vec(text, &mut blocks, FlushCompress::Sync).ok()?;
    // If the buffer is not full, the output is complete: a sync flush ends it with an empty stored block, at a byte boundary.
    (blocks.len() < blocks.capacity()).then(|| {
        blocks.shrink_to_fit();
        blocks
    })
}

fn stored(text: &[u8]) -> Vec<u8> {
    let mut blocks = Vec::with_capacity(text.len() + 5);
    for block in text.chunks(usize::from(u16::MAX)) {
        let length = u16::try_from(block.len()).unwrap_or(u16::MAX);
        blocks.push(0);
        blocks.extend(length.to_le_bytes());
        blocks.extend((!length).to_le_bytes());
        blocks.extend(block);
    }
    blocks
}

/// A gzip stream made of pieces.
#[derive(Debug, Default)]
pub(crate) struct GzipStream {
    has_begun: bool,
    /// CRC-32 of the texts so far, with their length.
    checksum: Crc,
}

impl GzipStream {
    /// Adds a piece, and returns the next bytes of the stream.
    pub(crate) fn push(&mut self, piece: &Piece) -> Bytes {
        self.checksum.combine(&piece.checksum);
        match self.header() {
            [] => piece.blocks.clone(),
            header => [header, &piece.blocks].concat().into(),
        }
    }

    /// The final bytes of the stream.
    pub(crate) fn end(mut self) -> Bytes {
        let [sum, length] = [self.checksum.sum(), self.checksum.amount()].map(u32::to_le_bytes);
        [self.header(), &LAST_BLOCK, &sum, &length].concat().into()
    }

    /// The header the first time, then nothing.
    fn header(&mut self) -> &'static [u8] {
        if std::mem::replace(&mut self.has_begun, true) { &[] } else { &HEADER }
    }
}

#[cfg(test)]
mod tests;
