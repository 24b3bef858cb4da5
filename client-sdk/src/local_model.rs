//! A task's model on this device, for its app: the published one, verified, that the last round began with, or the last one once the task is
//! over; or the device's personalized one.
//!
//! It is read from the journal, so it is available after a restart, without a network and long after the task is over.
//! It is for use by the app on this device and stays here.

use std::sync::Arc;

use learning::{MetricValue, Parameters, checkpoint};
use wire::{Digest, TaskId};

use crate::journal::{Journal, JournalError};
#[cfg(feature = "models")]
use crate::models::Architecture;
use crate::participant::snapshot::{self, ModelRecord, PersonalizedRecord};
use crate::participant::{KeptModel, KeptModels};
use crate::personalize::PersonalTensors;
#[cfg(feature = "models")]
use crate::train::{
    Column, Device, GraphInputs, GraphOutput, GraphPredictor, Inputs, NamedTensor, Scores, TrainError, graph_of,
    in_order, scores,
};

/// A model. It cannot be printed, copied or serialized; it is erased when dropped.
///
/// ```no_run
/// # use client_sdk::Participant;
/// # fn show(participant: &Participant, task: wire::TaskId, row: &[f32]) -> Result<(), Box<dyn std::error::Error>> {
/// if let Some(model) = participant.model(task)? {
///     println!("class {} says the model {:?}", model.classes(row)?[0], model.origin());
/// }
/// # Ok(())
/// # }
/// ```
pub struct Model {
    tensors: PersonalTensors,
    origin: Origin,
    architecture: Option<serde_json::Value>,
    metrics: Vec<(String, MetricValue)>,
}

/// Where a model comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A version that the coordinator published. Its file has this digest, which was checked against the coordinator's signed record
    /// of the version when it came, and again when it was read.
    Published { version: u32, sha256: Digest },
    /// Made on this device in this round.
    Personalized { round: u32 },
}

/// Reasons why a model cannot predict.
#[cfg(feature = "models")]
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PredictError {
    /// The model is not built into the SDK: the app must run it from [`Model::parameters`].
    #[error("the task's model is none of the SDK's own; run it from its parameters")]
    OtherModel,
    /// The input does not fit the model, or the computation failed.
    #[error(transparent)]
    Failed(#[from] TrainError),
}

impl Model {
    /// Reads a task's model from a journal: the personalized one where there is one, else the published one. `None` if
    /// the journal lacks both. For apps that use the model while the participant is stopped.
    ///
    /// # Errors
    /// [`JournalError`] if a record cannot be read or was damaged.
    pub fn load(journal: &dyn Journal, task: TaskId) -> Result<Option<Self>, JournalError> {
        match Self::load_personalized(journal, task)? {
            Some(own) => Ok(Some(own)),
            None => Self::load_published(journal, task),
        }
    }

    /// The same for the task of this name that the journal was given a model of last.
    ///
    /// # Errors
    /// As for [`Self::load`].
    pub fn load_of(journal: &dyn Journal, name: &str) -> Result<Option<Self>, JournalError> {
        let kept = Self::kept(journal)?.into_iter().rev().find(|kept| kept.name == name);
        kept.map_or(Ok(None), |kept| Self::load(journal, kept.task))
    }

    /// The last published model of a task that the participant was given; where tensors stay on the device, without these.
    ///
    /// # Errors
    /// As for [`Self::load`].
    pub fn load_published(journal: &dyn Journal, task: TaskId) -> Result<Option<Self>, JournalError> {
        let Some(record) = journal.load(&snapshot::model(task))? else { return Ok(None) };
        let Some(ModelRecord { version, sha256, architecture, parameters }) = ModelRecord::decode(&record)? else {
            return Ok(None);
        };
        let kept = Self::kept(journal)?.into_iter().find(|kept| (kept.task, kept.sha256) == (task, sha256));
        let metrics = kept.map(|kept| kept.metrics).unwrap_or_default();
        let origin = Origin::Published { version, sha256 };
        Ok(Some(Self { tensors: PersonalTensors::new(parameters), origin, architecture, metrics }))
    }

    /// The device's own model of a task with personalization, as the last round that it took part in left it.
    ///
    /// # Errors
    /// As for [`Self::load`].
    pub fn load_personalized(journal: &dyn Journal, task: TaskId) -> Result<Option<Self>, JournalError> {
        let name = snapshot::own(task);
        let Some(record) = journal.load(&name)? else { return Ok(None) };
        let PersonalizedRecord { round, architecture, model } = PersonalizedRecord::decode(&record)?;
        let read = checkpoint::read_layout(&model).and_then(|layout| checkpoint::read(&model, &Arc::new(layout)));
        let parameters = read.map_err(|error| JournalError::corrupt(&name, error))?;
        let kept = Self::kept(journal)?.into_iter().find(|kept| kept.task == task);
        let metrics = kept.map(|kept| kept.personal_metrics).unwrap_or_default();
        let origin = Origin::Personalized { round };
        Ok(Some(Self { tensors: PersonalTensors::new(parameters), origin, architecture, metrics }))
    }

    /// The published models in a journal, the one that was written last at the end.
    ///
    /// # Errors
    /// [`JournalError`] if the list cannot be read or was damaged.
    pub fn kept(journal: &dyn Journal) -> Result<Vec<KeptModel>, JournalError> {
        let record = journal.load(snapshot::MODELS)?;
        Ok(KeptModels::restore(record.as_deref().map(Vec::as_slice))?.models)
    }

    /// All tensors; in a personalized model the shared ones are as this device last had them.
    #[must_use]
    pub fn parameters(&self) -> &Parameters {
        self.tensors.parameters()
    }

    #[must_use]
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// Metrics that the trainer measured on this device, by name; empty before the first measurement. For a published
    /// model see [`KeptModel::metrics`].
    #[must_use]
    pub fn metrics(&self) -> &[(String, MetricValue)] {
        &self.metrics
    }

    /// The task's description of its model, if it has one.
    #[must_use]
    pub fn architecture(&self) -> Option<&serde_json::Value> {
        self.architecture.as_ref()
    }
}

#[cfg(feature = "models")]
impl Model {
    /// The scores of each class for each of `inputs`.
    ///
    /// # Errors
    /// [`PredictError`].
    pub fn scores(&self, inputs: Inputs<'_>) -> Result<Scores, PredictError> {
        Ok(scores(&self.ready()?, self.parameters(), inputs, &Device::Cpu)?)
    }

    /// All outputs of a graph, in its order, for its inputs by name, in any order.
    ///
    /// # Errors
    /// [`PredictError::OtherModel`] if the task's model is no graph; otherwise as [`GraphPredictor::predict`].
    pub fn predict(&self, inputs: &[NamedTensor]) -> Result<Vec<NamedTensor>, PredictError> {
        let Architecture::Graph(model) = self.ready()? else { return Err(PredictError::OtherModel) };
        let parameters = Arc::new(self.parameters().clone());
        Ok(GraphPredictor::new(model, parameters)?.predict(inputs)?)
    }

    /// The first output of a graph for its inputs by name, in any order: of each the elements of all `count` examples, one
    /// example after the other. `length` is that of the sequences, 1 for a graph without.
    ///
    /// # Errors
    /// [`PredictError::OtherModel`] if the task's model is none of the SDK's own; [`PredictError::Failed`] if it is no graph, or
    /// names the input that is unknown, missing, given twice, or of another type or number of elements.
    pub fn output(
        &self,
        inputs: &[(&str, Column<'_>)],
        count: usize,
        length: usize,
    ) -> Result<GraphOutput, PredictError> {
        let model = graph_of(self.ready()?)?;
        let columns = in_order(model.graph(), inputs.iter().copied())?;
        let inputs = GraphInputs { columns: &columns, count, length };
        let parameters = Arc::new(self.parameters().clone());
        Ok(GraphPredictor::new(model, parameters)?.first_output(inputs)?)
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

    fn stored(architecture: &Architecture, values: Option<&[f32]>, named: bool) -> Model {
        let mut parameters = architecture.initial(1).unwrap();
        if let Some(values) = values {
            parameters.values_mut().copy_from_slice(values);
        }
        let architecture = named.then(|| serde_json::to_value(architecture).unwrap());
        let record = snapshot::encode_personalized(7, architecture, &checkpoint::write(&parameters).unwrap()).unwrap();
        let journal = MemoryJournal::new();
        journal.save(&snapshot::own(task()), &record).unwrap();
        Model::load(&journal, task()).unwrap().unwrap()
    }

    #[test]
    fn it_predicts_with_what_the_journal_kept() {
        // Class 1 where the first number is larger, else class 0.
        let linear = Architecture::Linear(Linear { inputs: 2, classes: 2 });
        let model = stored(&linear, Some(&[0.0, 1.0, 1.0, 0.0, 0.0, 0.0]), true);
        assert_eq!(model.origin(), Origin::Personalized { round: 7 });
        assert_eq!(model.classes(&[3.0, 1.0, 1.0, 3.0]).unwrap(), [1, 0]);
        assert!(model.classes(&[1.0; 3]).unwrap_err().to_string().contains("rows of 2 numbers"));
        assert!(model.next_characters(&[0]).is_err());
        let named = model.output(&[("x", Column::F32(&[3.0, 1.0]))], 1, 1).unwrap_err().to_string();
        assert_eq!(named, "the linear model needs rows of features, without names");
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
        assert!(Model::load(&journal, task()).unwrap().is_none());
        for name in [snapshot::own(task()), snapshot::model(task())] {
            let journal = MemoryJournal::new();
            journal.save(&name, b"damaged").unwrap();
            assert!(Model::load(&journal, task()).is_err());
        }
    }
}
