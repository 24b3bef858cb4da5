//! A model that the app uses.

use std::sync::Arc;

use client_sdk::Origin;
use client_sdk::learning::MetricValue;

use crate::app::callbacks::{Kept, KeyStore};
use crate::error::TributaryError;
use crate::options;
use crate::tensors::{Metric, Tensor, tensors};

/// The model of a task on this device: the personalized one where there is one, else the published one that the last round began with,
/// or the last version once the task is over. It stays as it is while the participant goes on, and after it was closed.
#[cfg_attr(feature = "uniffi", derive(uniffi::Object))]
pub struct Model(client_sdk::Model);

impl Model {
    pub(crate) fn new(model: client_sdk::Model) -> Arc<Self> {
        Arc::new(Self(model))
    }

    /// All parameters, tensor after tensor.
    pub(crate) fn values(&self) -> &[f32] {
        self.0.parameters().values()
    }

    #[cfg(feature = "models")]
    pub(crate) fn kept(&self) -> &client_sdk::Model {
        &self.0
    }
}

#[cfg_attr(feature = "uniffi", uniffi::export)]
impl Model {
    /// The published version, where 0 is the initial one; null for a personalized model.
    #[must_use]
    pub fn version(&self) -> Option<u32> {
        match self.0.origin() {
            Origin::Published { version, .. } => Some(version),
            Origin::Personalized { .. } => None,
        }
    }

    /// SHA-256 of the published file; null for a personalized model.
    #[must_use]
    pub fn sha256(&self) -> Option<String> {
        match self.0.origin() {
            Origin::Published { sha256, .. } => Some(sha256.to_string()),
            Origin::Personalized { .. } => None,
        }
    }

    /// The round that left a personalized model on the device; null for a published one.
    #[must_use]
    pub fn round(&self) -> Option<u32> {
        match self.0.origin() {
            Origin::Published { .. } => None,
            Origin::Personalized { round } => Some(round),
        }
    }

    /// The task's description of its model as JSON, if it has one.
    #[must_use]
    pub fn architecture(&self) -> Option<String> {
        self.0.architecture().map(ToString::to_string)
    }

    /// Metrics of the model from the app's answer in the round that began with it, without those of the training
    /// (`train_…`). Empty before that answer, after an answer without metrics of the model, as that of `job.train`, and
    /// for the last version of a task that is over. For a personalized model: its own metrics (`personal_…`).
    #[must_use]
    pub fn metrics(&self) -> Vec<Metric> {
        let metrics = self.0.metrics().iter();
        metrics
            .map(|(name, MetricValue { value, count })| Metric { name: name.clone(), value: *value, count: *count })
            .collect()
    }

    /// Its tensors, in the order of the flat vector.
    #[must_use]
    pub fn tensors(&self) -> Vec<Tensor> {
        tensors(self.0.parameters().layout())
    }

    /// A copy of the parameters: 32-bit floats, little-endian, tensor after tensor.
    #[must_use]
    pub fn parameters(&self) -> Vec<u8> {
        self.values().iter().flat_map(|value| value.to_le_bytes()).collect()
    }
}

/// The model of a task while the participant is stopped: from the journal in the options, without a thread or a
/// network. `options` are those of `Participant.start`. Null if the journal lacks a model of the task. A running
/// participant locks the journal: use `Participant.model` then.
///
/// # Errors
/// [`TributaryError::Configuration`], [`TributaryError::Journal`].
#[cfg_attr(feature = "uniffi", uniffi::export)]
pub fn load_model(
    options: String,
    key_store: Option<Arc<dyn KeyStore>>,
    task: String,
) -> Result<Option<Arc<Model>>, TributaryError> {
    let options = options::read(options)?;
    let journal = match key_store {
        Some(keys) => options.journal_with_keys(Arc::new(Kept(keys))),
        None => options.journal(),
    };
    let journal = journal.map_err(|error| TributaryError::from(&error))?;
    Ok(client_sdk::Model::load_of(&journal, &task)?.map(Model::new))
}
