//! Records for the journal.

use bytes::Bytes;
use zeroize::Zeroizing;

/// A record to save.
pub struct Record {
    pub name: String,
    bytes: Zeroizing<Vec<u8>>,
    /// A pending update, exactly the bytes that are sent; empty in other records.
    pub(in crate::participant) body: Bytes,
}

impl Record {
    pub(in crate::participant) fn new(name: String, bytes: Zeroizing<Vec<u8>>) -> Self {
        Self { name, bytes, body: Bytes::new() }
    }

    /// Its content: two parts, in order. See [`crate::journal::Journal::save_parts`].
    #[must_use]
    pub fn parts(&self) -> [&[u8]; 2] {
        [&self.bytes, &self.body]
    }

    /// Its content as one vector.
    #[must_use]
    pub fn content(&self) -> Zeroizing<Vec<u8>> {
        Zeroizing::new(self.parts().concat())
    }
}
