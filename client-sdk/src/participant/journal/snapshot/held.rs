//! The record of an update trained ahead of rounds, or of its absence.
//!
//! The update is in this record until a masked input is made of it: the record is emptied before that input is written.
//! So it enters at most one sum, whenever the process dies. The local state of the same training is stored with it and
//! takes effect with it.

use learning::MetricValue;
use serde::{Deserialize, Serialize};
use wire::{Digest, TaskId};
use zeroize::Zeroizing;

use super::local_state::Lengths;
use super::{HELD, LocalState, UPDATE, decode, encode};
use crate::journal::JournalError;

/// Identifies a finished update.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::participant) struct HeldUpdateId {
    pub(in crate::participant) task: TaskId,
    /// Serial number of its training.
    pub(in crate::participant) serial: u32,
    /// The version it started from.
    pub(in crate::participant) version: u32,
    /// Digest of the training that the device was assigned: rounds whose members agree on another do not get the
    /// update.
    #[serde(default = "unknown_base")]
    pub(in crate::participant) trained: Digest,
    /// SHA-256 of the received file of that version: rounds whose members agree on another file do not get the update.
    #[serde(default = "unknown_base")]
    pub(in crate::participant) base: Digest,
}

/// A placeholder for older records without one of these digests: all rounds reject such an update.
fn unknown_base() -> Digest {
    Digest([0; 32])
}

pub(in crate::participant) struct HeldRecord {
    pub(in crate::participant) held: HeldUpdateId,
    pub(in crate::participant) examples: u64,
    pub(in crate::participant) metrics: Vec<MetricValue>,
    /// The trained difference, as a safetensors file.
    pub(in crate::participant) delta: Zeroizing<Vec<u8>>,
    /// Local state of the same training.
    pub(in crate::participant) local_state: LocalState,
    /// Digest of the record of the model that the update is made of, if the trainer is a region.
    pub(in crate::participant) below: Option<Digest>,
}

#[derive(Serialize, Deserialize)]
struct Header {
    update: Option<UpdateHeader>,
}

#[derive(Serialize, Deserialize)]
struct UpdateHeader {
    #[serde(flatten)]
    held: HeldUpdateId,
    examples: u64,
    metrics: Vec<MetricValue>,
    delta_bytes: usize,
    #[serde(flatten)]
    local_state: Lengths,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    below: Option<Digest>,
}

impl HeldRecord {
    pub(in crate::participant) fn encode(&self) -> Result<Zeroizing<Vec<u8>>, JournalError> {
        let Self { held, examples, ref metrics, ref delta, ref local_state, below } = *self;
        let (metrics, delta_bytes, lengths) = (metrics.clone(), delta.len(), local_state.lengths());
        let update = UpdateHeader { held, examples, metrics, delta_bytes, local_state: lengths, below };
        let [personal, residual, own] = local_state.parts();
        encode(UPDATE, HELD, &Header { update: Some(update) }, &[delta, personal, residual, own])
    }

    /// `None` if the record is of an absent update.
    pub(in crate::participant) fn decode(record: &[u8]) -> Result<Option<Self>, JournalError> {
        let (Header { update }, mut parts) = decode(UPDATE, record)?;
        let update = match update {
            Some(UpdateHeader { held, examples, metrics, delta_bytes, local_state, below }) => {
                let delta = parts.secret(delta_bytes)?;
                let local_state = LocalState::read(&mut parts, local_state)?;
                Some(Self { held, examples, metrics, delta, local_state, below })
            }
            None => None,
        };
        parts.end()?;
        Ok(update)
    }
}

/// The record without an update.
pub(in crate::participant) fn encode_nothing_held() -> Result<Zeroizing<Vec<u8>>, JournalError> {
    encode(UPDATE, HELD, &Header { update: None }, &[])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_update_that_does_not_say_how_or_from_what_it_was_trained_is_one_that_no_round_gets() {
        let task = "00000000-0000-0000-0000-000000000001".parse().unwrap();
        let held = HeldUpdateId { task, serial: 3, version: 9, trained: Digest([7; 32]), base: Digest([8; 32]) };
        let unknown_base = Digest([0; 32]);
        for (absent, expected) in [
            ("trained", HeldUpdateId { trained: unknown_base, ..held }),
            ("base", HeldUpdateId { base: unknown_base, ..held }),
        ] {
            let local_state = LocalState::NOTHING.lengths();
            let update =
                UpdateHeader { held, examples: 60, metrics: Vec::new(), delta_bytes: 2, local_state, below: None };
            let mut header = serde_json::to_value(Header { update: Some(update) }).unwrap();
            header["update"].as_object_mut().unwrap().remove(absent).unwrap();
            let back = HeldRecord::decode(&encode(UPDATE, HELD, &header, &[b"ab"]).unwrap()).unwrap().unwrap();
            assert_eq!(back.held, expected);
        }
    }

    #[test]
    fn an_update_comes_back_and_every_damage_is_found() {
        let task = "00000000-0000-0000-0000-000000000001".parse().unwrap();
        let held = HeldUpdateId { task, serial: 3, version: 9, trained: Digest([7; 32]), base: Digest([8; 32]) };
        let metrics = vec![MetricValue { value: 0.1, count: 3 }];
        let local_state = LocalState { personal: Some(Zeroizing::new(b"head".to_vec())), ..LocalState::NOTHING };
        let delta = Zeroizing::new(b"what training changed".to_vec());
        let below = Some(Digest([6; 32]));
        let record = HeldRecord { held, examples: 60, metrics: metrics.clone(), delta, local_state, below };
        let record = record.encode().unwrap();
        let back = HeldRecord::decode(&record).unwrap().unwrap();
        assert_eq!((back.held, back.examples, back.metrics, back.below), (held, 60, metrics, below));
        assert_eq!(back.delta.as_slice(), b"what training changed");
        assert_eq!(back.local_state.personal.unwrap().as_slice(), b"head");
        assert!(HeldRecord::decode(&encode_nothing_held().unwrap()).unwrap().is_none());
        for position in 0..record.len() {
            let mut damaged = record.to_vec();
            damaged[position] ^= 1;
            assert!(HeldRecord::decode(&damaged).is_err(), "bit flipped at {position}");
            assert!(HeldRecord::decode(&record[..position]).is_err(), "cut at {position}");
        }
    }
}
