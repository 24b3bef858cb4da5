//! The record of refusals.

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::{PLAIN, REFUSALS, decode, encode};
use crate::journal::JournalError;
use crate::participant::journal::refusals::Refusals;

#[derive(Serialize, Deserialize)]
struct Header {
    /// Length of the list, which is JSON.
    bytes: usize,
}

impl Refusals {
    pub(in crate::participant) fn encode(&self) -> Result<Zeroizing<Vec<u8>>, JournalError> {
        let text = serde_json::to_vec(&self.list).map_err(|error| JournalError::corrupt(REFUSALS, error))?;
        encode(REFUSALS, PLAIN, &Header { bytes: text.len() }, &[&text])
    }

    /// Restores the record; without one the list is empty.
    pub(in crate::participant) fn restore(record: Option<&[u8]>) -> Result<Self, JournalError> {
        let Some(record) = record else { return Ok(Self::default()) };
        let (Header { bytes }, mut parts) = decode(REFUSALS, record)?;
        let text = parts.take(bytes)?;
        parts.end()?;
        let list = serde_json::from_slice(text).map_err(|error| JournalError::corrupt(REFUSALS, error))?;
        Ok(Self { list, unsaved: false })
    }
}
