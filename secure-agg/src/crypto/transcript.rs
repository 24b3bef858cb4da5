//! SHA-256 over unambiguously encoded fields: `enc(x) = u32be(len) || x`, so different lists of fields have different digests.

use ring::digest::{Context, SHA256};

use super::suite::PROTOCOL;

pub type Digest = [u8; 32];

/// A digest in progress.
pub(crate) struct Transcript(Context);

impl Transcript {
    /// Starts with `enc(protocol) || enc(label)`.
    pub(crate) fn labelled(label: &str) -> Self {
        Self(Context::new(&SHA256)).enc(PROTOCOL).enc(label.as_bytes())
    }

    pub(crate) fn bare() -> Self {
        Self(Context::new(&SHA256))
    }

    pub(crate) fn enc(self, bytes: &[u8]) -> Self {
        // The codec bounds every field far below 4 GiB.
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        self.u32(len).raw(bytes)
    }

    pub(crate) fn u32(self, value: u32) -> Self {
        self.raw(&value.to_be_bytes())
    }

    pub(crate) fn u64(self, value: u64) -> Self {
        self.raw(&value.to_be_bytes())
    }

    /// Appends bytes without a length: only for the last field or one of fixed size.
    pub(crate) fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.update(bytes);
        self
    }

    pub(crate) fn finish(self) -> Digest {
        let mut digest = [0; 32];
        digest.copy_from_slice(self.0.finish().as_ref());
        digest
    }
}

pub(crate) fn sha256(bytes: &[u8]) -> Digest {
    Transcript::bare().raw(bytes).finish()
}
