//! What the journal is given to keep.

use bytes::Bytes;
use zeroize::Zeroizing;

/// A record to save.
pub struct Record {
    /// Its name.
    pub name: String,
    bytes: Zeroizing<Vec<u8>>,
    /// What comes behind: an update on its way, the very bytes that are sent; empty in other records.
    pub(super) body: Bytes,
}

impl Record {
    pub(super) fn new(name: String, bytes: Zeroizing<Vec<u8>>) -> Self {
        Self { name, bytes, body: Bytes::new() }
    }

    /// Its content: the one part behind the other. See [`crate::journal::Journal::save_parts`].
    #[must_use]
    pub fn parts(&self) -> [&[u8]; 2] {
        [&self.bytes, &self.body]
    }

    /// Its content in one piece.
    #[must_use]
    pub fn content(&self) -> Zeroizing<Vec<u8>> {
        Zeroizing::new(self.parts().concat())
    }
}
