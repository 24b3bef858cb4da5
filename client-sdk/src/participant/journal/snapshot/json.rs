//! Records whose content is JSON: where models come from, the participant's refusals, and the list of published models.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::{MODELS, PLAIN, PROVENANCE, REFUSALS, decode, encode};
use crate::journal::JournalError;
use crate::participant::checks::provenance::Shown;
use crate::participant::journal::refusals::Refusals;
use crate::participant::model::kept_models::KeptModels;

#[derive(Serialize, Deserialize)]
struct Header {
    /// Length of the following JSON, which may be longer than a header.
    bytes: usize,
}

fn encode_json(name: &str, content: &impl Serialize) -> Result<Zeroizing<Vec<u8>>, JournalError> {
    let text = serde_json::to_vec(content).map_err(|error| JournalError::corrupt(name, error))?;
    encode(name, PLAIN, &Header { bytes: text.len() }, &[&text])
}

/// The content of a record; without one it is empty.
fn decode_json<T: Default + DeserializeOwned>(name: &'static str, record: Option<&[u8]>) -> Result<T, JournalError> {
    let Some(record) = record else { return Ok(T::default()) };
    let (Header { bytes }, mut parts) = decode(name, record)?;
    let text = parts.take(bytes)?;
    parts.end()?;
    serde_json::from_slice(text).map_err(|error| JournalError::corrupt(name, error))
}

/// The coordinator's key, and the versions that it has shown.
impl Shown {
    pub(in crate::participant) fn encode(&self) -> Result<Zeroizing<Vec<u8>>, JournalError> {
        encode_json(PROVENANCE, self)
    }

    pub(in crate::participant) fn restore(record: Option<&[u8]>) -> Result<Self, JournalError> {
        decode_json(PROVENANCE, record)
    }
}

impl Refusals {
    pub(in crate::participant) fn encode(&self) -> Result<Zeroizing<Vec<u8>>, JournalError> {
        encode_json(REFUSALS, &self.list)
    }

    pub(in crate::participant) fn restore(record: Option<&[u8]>) -> Result<Self, JournalError> {
        Ok(Self { list: decode_json(REFUSALS, record)?, unsaved: false })
    }
}

impl KeptModels {
    pub(in crate::participant) fn encode(&self) -> Result<Zeroizing<Vec<u8>>, JournalError> {
        encode_json(MODELS, self)
    }

    pub(crate) fn restore(record: Option<&[u8]>) -> Result<Self, JournalError> {
        decode_json(MODELS, record)
    }
}
