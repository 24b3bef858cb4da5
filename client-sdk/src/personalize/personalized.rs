//! A device's personalized model, for its app: complete, as of the last round that this device took part in.
//!
//! It is read from the journal, so it is available after a restart, without a network and long after the task is over.
//! It is for use by the app on this device; nothing here sends it.

use std::sync::Arc;

use learning::{Parameters, checkpoint};
use wire::TaskId;

use crate::journal::{Journal, JournalError};
#[cfg(feature = "models")]
use crate::models::Architecture;
use crate::participant::snapshot::{self, PersonalizedRecord};
use crate::personalize::PersonalTensors;
#[cfg(feature = "models")]
use crate::train::{Device, Inputs, Scores, TrainError, scores};

/// A personalized model. Not printable, not copyable, not serializable; erased when dropped.
///
/// ```no_run
/// # use client_sdk::Participant;
/// # fn show(participant: &Participant, task: wire::TaskId, row: &[f32]) -> Result<(), Box<dyn std::error::Error>> {
/// if let Some(model) = participant.personal_model(task)? {
///     println!("class {} says the model of round {}", model.classes(row)?[0], model.round());
/// }
/// # Ok(())
/// # }
/// ```
pub struct PersonalModel {
    tensors: PersonalTensors,
    round: u32,
    architecture: Option<serde_json::Value>,
}

/// Reasons a model gives no prediction.
#[cfg(feature = "models")]
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PredictError {
    /// The model is not built into the SDK: the app must run it from [`PersonalModel::parameters`].
    #[error("the task's model is none of the SDK's own; run it from its parameters")]
    OtherModel,
    /// The input does not fit the model, or the computation failed.
    #[error(transparent)]
    Failed(#[from] TrainError),
}

impl PersonalModel {
    /// Reads the model from a journal; `None` if no round of the task has stored one. For apps that use the model while
    /// no participant runs.
    ///
    /// # Errors
    /// [`JournalError`] if the record cannot be read or was damaged.
    pub fn load(journal: &dyn Journal, task: TaskId) -> Result<Option<Self>, JournalError> {
        let name = snapshot::own(task);
        let Some(record) = journal.load(&name)? else { return Ok(None) };
        let PersonalizedRecord { round, architecture, model } = PersonalizedRecord::decode(&record)?;
        let read = checkpoint::read_layout(&model).and_then(|layout| checkpoint::read(&model, &Arc::new(layout)));
        let parameters = read.map_err(|error| JournalError::corrupt(&name, error))?;
        Ok(Some(Self { tensors: PersonalTensors::new(parameters), round, architecture }))
    }

    /// All tensors, with the shared ones as this device last had them.
    #[must_use]
    pub fn parameters(&self) -> &Parameters {
        &self.tensors.0
    }

    /// The round that produced it.
    #[must_use]
    pub fn round(&self) -> u32 {
        self.round
    }

    /// The task's description of its model, if it has one.
    #[must_use]
    pub fn architecture(&self) -> Option<&serde_json::Value> {
        self.architecture.as_ref()
    }
}

#[cfg(feature = "models")]
impl PersonalModel {
    /// The scores of each class for each of `inputs`.
    ///
    /// # Errors
    /// [`PredictError`].
    pub fn scores(&self, inputs: Inputs<'_>) -> Result<Scores, PredictError> {
        Ok(scores(&self.ready()?, self.parameters(), inputs, &Device::Cpu)?)
    }

    /// The class of each row of `features`, which are concatenated rows of the model's input length.
    ///
    /// # Errors
    /// [`PredictError`].
    pub fn classes(&self, features: &[f32]) -> Result<Vec<u32>, PredictError> {
        Ok(self.scores(Inputs::Rows(features))?.best())
    }

    /// The most likely next character after each of `characters`, one sequence.
    ///
    /// # Errors
    /// [`PredictError`].
    pub fn next_characters(&self, characters: &[u32]) -> Result<Vec<u32>, PredictError> {
        Ok(self.scores(Inputs::Characters(characters))?.best())
    }

    fn ready(&self) -> Result<Architecture, PredictError> {
        let architecture = self.architecture.clone().ok_or(PredictError::OtherModel)?;
        let ready: Architecture = serde_json::from_value(architecture).map_err(|_| PredictError::OtherModel)?;
        match ready.layout() {
            Ok(layout) if layout == **self.parameters().layout() => Ok(ready),
            _ => Err(PredictError::OtherModel),
        }
    }
}

#[cfg(test)]
#[cfg(feature = "models")]
mod tests {
    use super::*;
    use crate::journal::MemoryJournal;
    use crate::models::{Gru, Linear};

    fn task() -> TaskId {
        "00000000-0000-0000-0000-000000000001".parse().unwrap()
    }

    fn stored(architecture: &Architecture, values: Option<&[f32]>, named: bool) -> PersonalModel {
        let mut parameters = architecture.initial(1).unwrap();
        if let Some(values) = values {
            parameters.values_mut().copy_from_slice(values);
        }
        let architecture = named.then(|| serde_json::to_value(architecture).unwrap());
        let record = snapshot::encode_personalized(7, architecture, &checkpoint::write(&parameters).unwrap()).unwrap();
        let journal = MemoryJournal::new();
        journal.save(&snapshot::own(task()), &record).unwrap();
        PersonalModel::load(&journal, task()).unwrap().unwrap()
    }

    #[test]
    fn it_predicts_with_what_the_journal_kept() {
        // Class 1 where the first number is larger, else class 0.
        let linear = Architecture::Linear(Linear { inputs: 2, classes: 2 });
        let model = stored(&linear, Some(&[0.0, 1.0, 1.0, 0.0, 0.0, 0.0]), true);
        assert_eq!(model.round(), 7);
        assert_eq!(model.classes(&[3.0, 1.0, 1.0, 3.0]).unwrap(), [1, 0]);
        assert!(model.classes(&[1.0; 3]).unwrap_err().to_string().contains("rows of 2 numbers"));
        assert!(model.next_characters(&[0]).is_err());
        let gru = stored(&Architecture::Gru(Gru::with_vocabulary(5)), None, true);
        assert_eq!(gru.next_characters(&[0, 4, 1]).unwrap().len(), 3);
        assert!(gru.next_characters(&[5]).unwrap_err().to_string().contains("below 5"));
    }

    #[test]
    fn a_model_of_the_apps_own_is_given_as_tensors_alone() {
        let model = stored(&Architecture::Linear(Linear { inputs: 2, classes: 2 }), None, false);
        assert!(matches!(model.classes(&[1.0, 2.0]), Err(PredictError::OtherModel)));
        assert_eq!(model.parameters().values().len(), 6);
    }

    #[test]
    fn no_record_is_no_model_and_a_damaged_one_an_error() {
        let journal = MemoryJournal::new();
        assert!(PersonalModel::load(&journal, task()).unwrap().is_none());
        journal.save(&snapshot::own(task()), b"damaged").unwrap();
        assert!(PersonalModel::load(&journal, task()).is_err());
    }
}
