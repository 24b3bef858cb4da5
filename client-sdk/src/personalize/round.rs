//! What a method of personalization works with in one round, and what it yields.

use learning::{Adapters, MetricValue, Parameters, WrongLayout};
use task_spec::{PERSONAL_PREFIX, TrainingPlan};

use super::tensors::PersonalTensors;
use crate::train::Constraints;
use crate::trainer::{Trained, Trainer, TrainerError, TrainingJob};
use recipe::device::pipeline::{PipelineError, check_finite};

/// Why a method yielded nothing.
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

/// What one round yields on this device: one part goes one way, the other the other.
pub(crate) struct Local {
    /// For the pipeline: in the layout of what was received.
    pub(crate) update: Trained,
    /// For the journal; nothing where nothing but the own model stays at home.
    pub(crate) personal: Option<PersonalTensors>,
    /// Of the model as it came.
    pub(crate) evaluated: Vec<(String, MetricValue)>,
    /// The device's own model, as the round leaves it.
    pub(crate) own: Own,
}

/// A device's own model: for the app, and for the journal, which keeps it for the app.
pub(crate) struct Own {
    /// Every tensor of it.
    pub(crate) model: PersonalTensors,
    /// Named with [`PERSONAL_PREFIX`]; nothing if the task asks for none.
    pub(crate) metrics: Vec<(String, MetricValue)>,
}

/// A round's inputs, and the trainer.
pub(crate) struct Round<'a> {
    pub(crate) trainer: &'a mut dyn Trainer,
    pub(crate) job: &'a TrainingJob,
    pub(crate) received: &'a Parameters,
    /// Nothing before the first round, where the received model decides.
    pub(crate) kept: Option<&'a PersonalTensors>,
}

impl Round<'_> {
    /// Measures a model.
    pub(super) fn evaluate(&mut self, model: &Parameters) -> Result<Vec<(String, MetricValue)>, LocalError> {
        Ok(self.trainer.evaluate(model, self.job)?)
    }

    /// The device's own model, measured if the task asks for it.
    pub(super) fn own(&mut self, model: &Parameters) -> Result<Own, LocalError> {
        let mut metrics = Vec::new();
        if self.job.metrics.iter().any(|name| name.starts_with(PERSONAL_PREFIX)) {
            let measured = self.trainer.evaluate(model, self.job)?;
            metrics.extend(measured.into_iter().map(|(name, value)| (format!("{PERSONAL_PREFIX}{name}"), value)));
        }
        Ok(Own { model: PersonalTensors::new(model.clone()), metrics })
    }

    /// Trains as the task says.
    pub(super) fn train(&mut self, model: &Parameters) -> Result<Trained, LocalError> {
        let plan = self.job.plan.clone();
        self.train_within(model, plan, 0, Constraints::default())
    }

    /// Trains as `plan` says. Each `turn` of a round shuffles anew; turn 0 as without personalization.
    pub(super) fn train_within(
        &mut self,
        model: &Parameters,
        plan: TrainingPlan,
        turn: u64,
        constraints: Constraints<'_>,
    ) -> Result<Trained, LocalError> {
        if self.job.cancel.is_cancelled() {
            return Err(TrainerError::failed("nobody waits for the result any more").into());
        }
        let trained = self.trainer.train_within(model, &self.turn(plan, turn), constraints)?;
        checked(trained, model)
    }

    /// Trains adapters, beside a base that stays as it is, as `plan` says.
    pub(super) fn train_adapters(
        &mut self,
        base: &Parameters,
        start: &Parameters,
        plan: TrainingPlan,
        turn: u64,
        adapters: &Adapters,
    ) -> Result<Trained, LocalError> {
        if self.job.cancel.is_cancelled() {
            return Err(TrainerError::failed("nobody waits for the result any more").into());
        }
        let trained = self.trainer.train_adapters(base, start, &self.turn(plan, turn), adapters)?;
        checked(trained, start)
    }

    fn turn(&self, plan: TrainingPlan, turn: u64) -> TrainingJob {
        // Turns are far apart, so that the turns of one seed are not those of the next.
        let seed = self.job.seed.wrapping_add(turn.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        TrainingJob { plan, seed, ..self.job.clone() }
    }
}

/// What a trainer yields is in the layout of what it began with, and finite.
fn checked(trained: Trained, start: &Parameters) -> Result<Trained, LocalError> {
    if trained.parameters.layout() != start.layout() {
        return Err(PipelineError::WrongLayout.into());
    }
    check_finite(&trained.parameters)?;
    Ok(trained)
}

/// `share` of one model and the rest of another of the same layout.
pub(super) fn mix(own: &Parameters, share: f32, shared: &Parameters) -> Parameters {
    let mut mixed = own.clone();
    for (own, shared) in mixed.values_mut().iter_mut().zip(shared.values()) {
        *own = share * *own + (1.0 - share) * shared;
    }
    mixed
}

/// One rounding to f32 is meant: so are the models' numbers.
#[expect(clippy::cast_possible_truncation, reason = "one rounding to f32 is meant")]
pub(super) fn narrow(value: f64) -> f32 {
    value as f32
}
