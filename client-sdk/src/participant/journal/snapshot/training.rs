//! The record of a training in progress, or of its absence: the round's results so far and the trainer's own state.

use learning::MetricValue;
use serde::{Deserialize, Serialize};
use wire::{Attempt, Digest};
use zeroize::Zeroizing;

use super::{PLAIN, Parts, TRAINING, bytes_of, decode, encode};
use crate::journal::JournalError;

/// The training that a checkpoint is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::participant) struct TrainingId {
    pub(in crate::participant) place: Attempt,
    /// SHA-256 of the file that it starts from.
    pub(in crate::participant) base: Digest,
    /// Digest of the training that the device was assigned.
    pub(in crate::participant) trained: Digest,
}

/// A call of the trainer that has returned.
#[derive(Clone)]
pub(in crate::participant) enum Call {
    Evaluated(Vec<(String, MetricValue)>),
    Trained {
        /// The parameters, flat.
        values: Zeroizing<Vec<f32>>,
        examples: u64,
        metrics: Vec<(String, MetricValue)>,
    },
}

/// A training in progress.
pub(in crate::participant) struct TrainingRecord {
    pub(in crate::participant) id: TrainingId,
    /// Seed of its shuffling.
    pub(in crate::participant) seed: u64,
    /// The calls of the trainer that have returned, in order.
    pub(in crate::participant) calls: Vec<Call>,
    /// The saved state of the call after these.
    pub(in crate::participant) state: Option<Zeroizing<Vec<u8>>>,
}

#[derive(Serialize, Deserialize)]
struct Header {
    training: Option<TrainingHeader>,
}

#[derive(Serialize, Deserialize)]
struct TrainingHeader {
    #[serde(flatten)]
    id: TrainingId,
    seed: u64,
    calls: Vec<CallHeader>,
    state_bytes: Option<usize>,
}

#[derive(Serialize, Deserialize)]
struct CallHeader {
    metrics: Vec<(String, MetricValue)>,
    /// Of a training: number of values that follow, and examples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    trained: Option<(usize, u64)>,
}

impl TrainingRecord {
    pub(in crate::participant) fn encode(
        id: TrainingId,
        seed: u64,
        calls: &[Call],
        state: Option<&[u8]>,
    ) -> Result<Zeroizing<Vec<u8>>, JournalError> {
        let values = calls.iter().map(|call| match call {
            Call::Evaluated(_) => Zeroizing::default(),
            Call::Trained { values, .. } => bytes_of(values),
        });
        let values: Vec<_> = values.collect();
        let calls = calls.iter().map(|call| match call {
            Call::Evaluated(metrics) => CallHeader { metrics: metrics.clone(), trained: None },
            Call::Trained { values, examples, metrics } => {
                CallHeader { metrics: metrics.clone(), trained: Some((values.len(), *examples)) }
            }
        });
        let state_bytes = state.map(<[u8]>::len);
        let header = Header { training: Some(TrainingHeader { id, seed, calls: calls.collect(), state_bytes }) };
        let parts: Vec<&[u8]> = values.iter().map(|values| values.as_slice()).chain(state).collect();
        encode(TRAINING, PLAIN, &header, &parts)
    }

    /// `None` if the record is of an ended training.
    pub(in crate::participant) fn decode(record: &[u8]) -> Result<Option<Self>, JournalError> {
        let (Header { training }, mut parts) = decode(TRAINING, record)?;
        let training = match training {
            Some(TrainingHeader { id, seed, calls, state_bytes }) => {
                let calls = calls.into_iter().map(|call| read(call, &mut parts)).collect::<Result<_, _>>()?;
                let state = state_bytes.map(|bytes| parts.secret(bytes)).transpose()?;
                Some(Self { id, seed, calls, state })
            }
            None => None,
        };
        parts.end()?;
        Ok(training)
    }
}

fn read(CallHeader { metrics, trained }: CallHeader, parts: &mut Parts<'_>) -> Result<Call, JournalError> {
    let Some((values, examples)) = trained else { return Ok(Call::Evaluated(metrics)) };
    Ok(Call::Trained { values: parts.numbers(values)?, examples, metrics })
}

/// The record without a training.
pub(in crate::participant) fn encode_no_training() -> Result<Zeroizing<Vec<u8>>, JournalError> {
    encode(TRAINING, PLAIN, &Header { training: None }, &[])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_training_comes_back_and_every_damage_is_found() {
        let place = Attempt { task: "00000000-0000-0000-0000-000000000001".parse().unwrap(), round: 3, attempt: 1 };
        let id = TrainingId { place, base: Digest([1; 32]), trained: Digest([2; 32]) };
        let metrics = vec![("loss".to_owned(), MetricValue { value: 0.1, count: 3 })];
        let values = Zeroizing::new(vec![0.5, -1.0]);
        let trained = Call::Trained { values: values.clone(), examples: 7, metrics: metrics.clone() };
        let calls = [Call::Evaluated(metrics.clone()), trained];
        let record = TrainingRecord::encode(id, u64::MAX, &calls, Some(b"state")).unwrap();
        let back = TrainingRecord::decode(&record).unwrap().unwrap();
        assert_eq!((back.id, back.seed, back.state.unwrap().as_slice()), (id, u64::MAX, &b"state"[..]));
        assert!(matches!(&back.calls[0], Call::Evaluated(found) if *found == metrics));
        assert!(matches!(&back.calls[1], Call::Trained { values: found, examples: 7, .. } if *found == values));
        for position in 0..record.len() {
            let mut damaged = record.to_vec();
            damaged[position] ^= 1;
            assert!(TrainingRecord::decode(&damaged).is_err(), "bit flipped at {position}");
            assert!(TrainingRecord::decode(&record[..position]).is_err(), "cut at {position}");
        }
        assert!(TrainingRecord::decode(&encode_no_training().unwrap()).unwrap().is_none());
    }
}
