//! The record of a published model, kept for the app: the file as it was received, behind the digest, which is the
//! file's own. So it is verified again each time it is read.

use std::sync::Arc;

use bytes::Bytes;
use learning::contribution::scaffold;
use learning::{CheckpointError, Layout, Parameters, checkpoint};
use serde::{Deserialize, Serialize};
use wire::Digest;
use zeroize::Zeroizing;

use super::{BEHIND, decode, encode_before_body};
use crate::journal::JournalError;
use recipe::digest::sha256;

const NAME: &str = "model";

/// A published model, read from the journal.
pub(crate) struct ModelRecord {
    pub(crate) version: u32,
    /// Of the published file.
    pub(crate) sha256: Digest,
    /// The task's description of its architecture.
    pub(crate) architecture: Option<serde_json::Value>,
    /// The model alone: without the control variates that SCAFFOLD publishes with it.
    pub(crate) parameters: Parameters,
}

#[derive(Serialize, Deserialize)]
struct Header {
    /// `None` once it has made room for others.
    model: Option<ModelHeader>,
}

#[derive(Serialize, Deserialize)]
struct ModelHeader {
    version: u32,
    architecture: Option<serde_json::Value>,
}

/// Encodes the record up to the file of this digest, which follows it.
pub(in crate::participant) fn encode_model(
    version: u32,
    architecture: Option<serde_json::Value>,
    sha256: Digest,
    file: &Bytes,
) -> Result<Zeroizing<Vec<u8>>, JournalError> {
    let model = Some(ModelHeader { version, architecture });
    encode_before_body(NAME, BEHIND, file.len(), sha256, &Header { model }, &[])
}

/// The record without a model.
pub(in crate::participant) fn encode_no_model() -> Result<Zeroizing<Vec<u8>>, JournalError> {
    encode_before_body(NAME, BEHIND, 0, sha256(&[]), &Header { model: None }, &[])
}

impl ModelRecord {
    /// `None` if the model was removed.
    pub(crate) fn decode(record: &[u8]) -> Result<Option<Self>, JournalError> {
        let (Header { model }, mut parts) = decode(NAME, record)?;
        let (sha256, file) = parts.file()?;
        parts.end()?;
        let Some(ModelHeader { version, architecture }) = model else { return Ok(None) };
        let parameters = read(file).map_err(|error| JournalError::corrupt(NAME, error))?;
        Ok(Some(Self { version, sha256, architecture, parameters }))
    }
}

/// The tensors of a published file that are the model's own.
fn read(file: &[u8]) -> Result<Parameters, CheckpointError> {
    let found = checkpoint::read_layout(file)?;
    let own = found.tensors().iter().filter(|tensor| !tensor.name.starts_with(scaffold::CONTROL)).cloned().collect();
    scaffold::read_model(file, &Arc::new(Layout::new(own)?))
}

#[cfg(test)]
mod tests {
    use learning::TensorSpec;

    use super::*;

    fn parameters(specs: &[(&str, u64)]) -> Parameters {
        let specs = specs.iter().map(|(name, size)| TensorSpec { name: (*name).to_owned(), shape: vec![*size] });
        let mut parameters = Parameters::zeros(Arc::new(Layout::new(specs.collect()).unwrap()));
        parameters.values_mut().iter_mut().zip(1_u8..).for_each(|(value, number)| *value = number.into());
        parameters
    }

    fn whole(parameters: &Parameters) -> Vec<u8> {
        let file = Bytes::from(checkpoint::write(parameters).unwrap());
        let before = encode_model(7, Some("linear".into()), sha256(&file), &file).unwrap();
        [&before[..], &file].concat()
    }

    #[test]
    fn a_model_comes_back_and_every_damage_is_found() {
        let model = parameters(&[("b", 2), ("w", 3)]);
        let record = whole(&model);
        let back = ModelRecord::decode(&record).unwrap().unwrap();
        assert_eq!((back.version, back.architecture), (7, Some("linear".into())));
        assert_eq!((back.sha256, &back.parameters), (sha256(&checkpoint::write(&model).unwrap()), &model));
        for position in 0..record.len() {
            let mut damaged = record.clone();
            damaged[position] ^= 1;
            assert!(ModelRecord::decode(&damaged).is_err(), "bit flipped at {position}");
            assert!(ModelRecord::decode(&record[..position]).is_err(), "cut at {position}");
        }
        assert!(ModelRecord::decode(&encode_no_model().unwrap()).unwrap().is_none());
    }

    #[test]
    fn control_variates_are_not_the_models() {
        let published = parameters(&[("w", 3), ("control/w", 3)]);
        let back = ModelRecord::decode(&whole(&published)).unwrap().unwrap();
        assert_eq!(back.parameters, parameters(&[("w", 3)]));
    }
}
