//! The published file of one model version, hashed and read once however many participants of one process start from it.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use learning::{CheckpointError, Layout, Parameters, checkpoint};
use wire::Digest;

use recipe::digest::sha256;

/// A model version's file, with what is computed of it once: for many participants in one process that start from the same
/// version.
pub struct ModelFile {
    bytes: Bytes,
    sha256: Digest,
    /// The parameters, as first read.
    parameters: OnceLock<Arc<Parameters>>,
}

impl ModelFile {
    /// Any bytes; a participant that expects another version detects that by the digest.
    #[must_use]
    pub fn new(bytes: Bytes) -> Self {
        Self { sha256: sha256(&bytes), bytes, parameters: OnceLock::new() }
    }

    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    #[must_use]
    pub fn sha256(&self) -> Digest {
        self.sha256
    }

    /// The parameters in it, if it is a model of this layout in the form that a published model has.
    pub(super) fn parameters(&self, layout: &Arc<Layout>) -> Result<Arc<Parameters>, CheckpointError> {
        if let Some(read) = self.parameters.get().filter(|read| read.layout() == layout) {
            return Ok(Arc::clone(read));
        }
        let read = Arc::new(checkpoint::read_published(&self.bytes, layout)?);
        // The first result is kept; a file has one layout unless two tasks disagree.
        let _ = self.parameters.set(Arc::clone(&read));
        Ok(read)
    }
}
