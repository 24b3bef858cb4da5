//! Inputs and results of a personalization method in one round.

use learning::{Adapters, MetricValue, Parameters, WrongLayout};
use task_spec::{PERSONAL_PREFIX, TrainingPlan};

use super::tensors::PersonalTensors;
use crate::trainer::{Constraints, Purpose, Trained, Trainer, TrainerError, TrainingJob};
use recipe::device::pipeline::{PipelineError, check_finite};

/// Reasons why a method fails.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LocalError {
    #[error(transparent)]
    Trainer(#[from] TrainerError),
    #[error(transparent)]
    Pipeline(#[from] PipelineError),
}

impl From<WrongLayout> for LocalError {
    fn from(_: WrongLayout) -> Self {
        Self::Pipeline(PipelineError::WrongLayout)
    }
}

/// A round's results on this device: one part for the pipeline, the others for the journal.
pub(crate) struct LocalResult {
    /// For the pipeline: in the layout of the received model.
    pub(crate) update: Trained,
    /// For the journal; `None` if only the personalized model stays local.
    pub(crate) personal: Option<PersonalTensors>,
    /// Metrics of the received model.
    pub(crate) evaluated: Vec<(String, MetricValue)>,
    /// The personalized model at the end of the round.
    pub(crate) own: PersonalizedModel,
}

/// A device's personalized model, which the journal keeps for the app.
pub(crate) struct PersonalizedModel {
    /// All of its tensors.
    pub(crate) model: PersonalTensors,
    /// Named with [`PERSONAL_PREFIX`]; empty unless the task requires them.
    pub(crate) metrics: Vec<(String, MetricValue)>,
}

impl PersonalizedModel {
    /// Includes metrics that its training returned with [`PERSONAL_PREFIX`], for a trainer without evaluation.
    pub(super) fn said(mut self, of_training: Vec<(String, MetricValue)>) -> Self {
        self.metrics.extend(of_training.into_iter().filter(|(name, _)| name.starts_with(PERSONAL_PREFIX)));
        self
    }
}

/// Which training of a round it is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Turn {
    /// That of the shared model.
    Shared,
    /// One of the device's own model or part. Each number shuffles differently, and 0 as the shared model's.
    Own(u64),
}

/// A round's inputs, and the trainer.
pub(crate) struct LocalRound<'a> {
    pub(crate) trainer: &'a mut dyn Trainer,
    pub(crate) job: &'a TrainingJob,
    pub(crate) received: &'a Parameters,
    /// `None` before the first round if the received model determines them.
    pub(crate) kept: Option<&'a PersonalTensors>,
}

impl LocalRound<'_> {
    pub(super) fn evaluate(&mut self, model: &Parameters) -> Result<Vec<(String, MetricValue)>, LocalError> {
        Ok(self.trainer.evaluate(model, self.job)?)
    }

    /// The personalized model, evaluated if the task requires it.
    pub(super) fn own(&mut self, model: &Parameters) -> Result<PersonalizedModel, LocalError> {
        let mut metrics = Vec::new();
        if self.job.metrics.iter().any(|name| name.starts_with(PERSONAL_PREFIX)) {
            let measured = self.trainer.evaluate(model, self.job)?;
            metrics.extend(measured.into_iter().map(|(name, value)| (format!("{PERSONAL_PREFIX}{name}"), value)));
        }
        Ok(PersonalizedModel { model: PersonalTensors::new(model.clone()), metrics })
    }

    /// Trains the shared model according to the task.
    pub(super) fn train(&mut self, model: &Parameters) -> Result<Trained, LocalError> {
        let plan = self.job.plan.clone();
        self.train_within(model, plan, Turn::Shared, Constraints::default())
    }

    /// Trains according to `plan`.
    pub(super) fn train_within(
        &mut self,
        model: &Parameters,
        plan: TrainingPlan,
        turn: Turn,
        constraints: Constraints<'_>,
    ) -> Result<Trained, LocalError> {
        if self.job.cancel.is_cancelled() {
            return Err(TrainerError::failed("nobody waits for the result any more").into());
        }
        let trained = self.trainer.train_within(model, &self.turn(plan, turn), constraints)?;
        checked(trained, model)
    }

    /// Trains adapters of a frozen base according to `plan`.
    pub(super) fn train_adapters(
        &mut self,
        base: &Parameters,
        start: &Parameters,
        plan: TrainingPlan,
        turn: Turn,
        adapters: &Adapters,
    ) -> Result<Trained, LocalError> {
        if self.job.cancel.is_cancelled() {
            return Err(TrainerError::failed("nobody waits for the result any more").into());
        }
        let trained = self.trainer.train_adapters(base, start, &self.turn(plan, turn), adapters)?;
        checked(trained, start)
    }

    fn turn(&self, plan: TrainingPlan, turn: Turn) -> TrainingJob {
        let (purpose, number) = match turn {
            Turn::Shared => (Purpose::Shared, 0),
            Turn::Own(number) => (Purpose::Own, number),
        };
        // Turns differ by a large step, so that those of neighbouring seeds differ.
        let seed = self.job.seed.wrapping_add(number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        TrainingJob { plan, seed, purpose, ..self.job.clone() }
    }
}

/// Checks that a trainer's result is finite and in the layout of its input.
fn checked(trained: Trained, start: &Parameters) -> Result<Trained, LocalError> {
    if trained.parameters.layout() != start.layout() {
        return Err(PipelineError::WrongLayout.into());
    }
    check_finite(&trained.parameters)?;
    Ok(trained)
}

/// Interpolates between two models of the same layout: `share` of the first and the rest of the second.
pub(super) fn mix(own: &Parameters, share: f32, shared: &Parameters) -> Parameters {
    let mut mixed = own.clone();
    for (own, shared) in mixed.values_mut().iter_mut().zip(shared.values()) {
        *own = share * *own + (1.0 - share) * shared;
    }
    mixed
}

/// Rounds once to `f32`, the type of the models' values.
#[expect(clippy::cast_possible_truncation, reason = "one rounding to f32 is meant")]
pub(super) fn narrow(value: f64) -> f32 {
    value as f32
}
