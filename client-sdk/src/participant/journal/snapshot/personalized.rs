//! The record of a personalized model: all of its tensors, and the data for using it without the coordinator.

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::{OWN, decode, encode};
use crate::journal::JournalError;

const NAME: &str = "own";

/// A personalized model, in the journal's encoding.
pub(crate) struct PersonalizedRecord {
    /// The round that trained it.
    pub(crate) round: u32,
    /// The task's description of its architecture.
    pub(crate) architecture: Option<serde_json::Value>,
    /// Every tensor: a safetensors file.
    pub(crate) model: Zeroizing<Vec<u8>>,
}

#[derive(Serialize, Deserialize)]
struct Header {
    round: u32,
    architecture: Option<serde_json::Value>,
    model_bytes: usize,
}

/// `model` is a safetensors file.
pub(crate) fn encode_personalized(
    round: u32,
    architecture: Option<serde_json::Value>,
    model: &[u8],
) -> Result<Zeroizing<Vec<u8>>, JournalError> {
    encode(NAME, OWN, &Header { round, architecture, model_bytes: model.len() }, &[model])
}

impl PersonalizedRecord {
    pub(crate) fn decode(record: &[u8]) -> Result<Self, JournalError> {
        let (Header { round, architecture, model_bytes }, mut parts) = decode(NAME, record)?;
        let model = parts.secret(model_bytes)?;
        parts.end()?;
        Ok(Self { round, architecture, model })
    }
}
