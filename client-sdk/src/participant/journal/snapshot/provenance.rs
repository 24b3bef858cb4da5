//! The record of the coordinator's key, and of the versions that it has shown.

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::{PLAIN, PROVENANCE, decode, encode};
use crate::journal::JournalError;
use crate::participant::checks::provenance::Shown;

#[derive(Serialize, Deserialize)]
struct Header {
    /// Length of the following JSON, which may be longer than a header.
    bytes: usize,
}

impl Shown {
    pub(in crate::participant) fn encode(&self) -> Result<Zeroizing<Vec<u8>>, JournalError> {
        let text = serde_json::to_vec(self).map_err(|error| JournalError::corrupt(PROVENANCE, error))?;
        encode(PROVENANCE, PLAIN, &Header { bytes: text.len() }, &[&text])
    }

    /// Restores the record; without one the state is empty.
    pub(in crate::participant) fn restore(record: Option<&[u8]>) -> Result<Self, JournalError> {
        let Some(record) = record else { return Ok(Self::default()) };
        let (Header { bytes }, mut parts) = decode(PROVENANCE, record)?;
        let text = parts.take(bytes)?;
        parts.end()?;
        serde_json::from_slice(text).map_err(|error| JournalError::corrupt(PROVENANCE, error))
    }
}
