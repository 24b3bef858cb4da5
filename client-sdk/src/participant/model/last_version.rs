//! The last version of a task that is over, for the app's trainer to measure.

use std::sync::Arc;

use learning::{MetricValue, Parameters};
use recipe::{AssignmentTerms, Tensors};
use wire::participant::FinalModel;

use crate::checkpoints::Checkpoints;
use crate::participant::api::plan_error::WorkError;
use crate::trainer::{Cancel, Purpose, Trainer, TrainingJob};

/// The last version of a task that is over. Its metrics stay on the device.
pub struct LastVersion {
    model: Arc<Parameters>,
    job: TrainingJob,
}

impl LastVersion {
    /// `None` if the published file is not the model itself: where each device has a part of its own, adapters are shared, or a control variate
    /// comes with it.
    pub(in crate::participant) fn of(last: &FinalModel, model: Arc<Parameters>, seed: u64) -> Option<Self> {
        let tensors = Tensors::new(&AssignmentTerms::from(last)).ok()?;
        if tensors.published != tensors.whole {
            return None;
        }
        // Version 0 was made before the first round, and counts as round 1.
        let round = last.version.version.max(1);
        let job = TrainingJob {
            task: last.task_name.clone(),
            round,
            purpose: Purpose::Shared,
            plan: last.training.in_round(round),
            architecture: last.model.architecture.clone(),
            table: last.model.table.clone(),
            analytics: None,
            metrics: last.metrics.clone(),
            seed,
            deadline: None,
            cancel: Cancel::default(),
            checkpoints: Checkpoints::default(),
        };
        Some(Self { model, job })
    }

    /// Has `trainer` evaluate it ([`Trainer::evaluate_last`]). Blocks for as long as that takes.
    ///
    /// # Errors
    /// [`WorkError`]; report it to the machine as the result.
    pub fn evaluate(&self, trainer: &mut dyn Trainer) -> Result<Vec<(String, MetricValue)>, WorkError> {
        Ok(trainer.evaluate_last(&self.model, &self.job)?)
    }

    pub(in crate::participant) fn cancel(&self) {
        self.job.cancel.cancel();
    }
}
