//! The received model, and the inputs that the round's rule needs from training: the loss or number of steps that
//! weights an update, and the control variates that correct its gradients.

use std::borrow::Cow;
use std::sync::Arc;

use learning::contribution::scaffold;
use learning::{Controls, Layout, MetricValue, Parameters};
use recipe::Weighting;
use recipe::device::pipeline::{PipelineError, Weight};

use crate::participant::api::plan_error::WorkError;
use crate::trainer::Constraints;
use crate::trainer::{Trained, Trainer, TrainingJob};

/// The published file of a version, read.
pub(in crate::participant) struct Received<'m> {
    pub(in crate::participant) model: Cow<'m, Parameters>,
    /// The server's control variate; empty if the task has none.
    control: Vec<f32>,
}

impl<'m> Received<'m> {
    /// Splits the fetched parameters into the model and the server's control variate.
    pub(in crate::participant) fn open(
        rule: &Weighting,
        received: &'m Parameters,
        shared: &Arc<Layout>,
    ) -> Result<Self, WorkError> {
        if !rule.keeps_control() {
            return Ok(Received { model: Cow::Borrowed(received), control: Vec::new() });
        }
        let (model, control) = scaffold::split(received, shared).map_err(|_| PipelineError::WrongLayout)?;
        Ok(Received { model: Cow::Owned(model), control })
    }

    pub(in crate::participant) fn train(
        &self,
        rule: &Weighting,
        own: &[f32],
        job: &TrainingJob,
        trainer: &mut dyn Trainer,
    ) -> Result<Trained, WorkError> {
        let Weighting::Controlled(rule) = rule else { return Ok(trainer.train(&self.model, job)?) };
        let correction = rule.correction(self.controls(own)).map_err(PipelineError::from)?;
        let layout = Arc::clone(self.model.layout());
        let correction = Parameters::new(layout, correction).map_err(|_| PipelineError::WrongLayout)?;
        let constraints = Constraints { correction: Some(&correction), ..Constraints::default() };
        Ok(trainer.train_within(&self.model, job, constraints)?)
    }

    /// The weight of the update.
    pub(in crate::participant) fn weight<'a>(
        &'a self,
        rule: &'a Weighting,
        trained: &Trained,
        evaluated: &[(String, MetricValue)],
        own: &'a [f32],
    ) -> Result<Weight<'a>, WorkError> {
        let reach = || trained.reach().ok_or(WorkError::NoReach);
        Ok(match rule {
            Weighting::Examples => Weight::Examples(trained.examples),
            Weighting::Loss(rule) => Weight::Loss(rule, loss(evaluated)?),
            Weighting::Steps(rule) => Weight::Steps(rule, reach()?, trained.examples),
            Weighting::Controlled(rule) => Weight::Controlled(rule, reach()?, self.controls(own)),
        })
    }

    fn controls<'a>(&'a self, own: &'a [f32]) -> Controls<'a> {
        Controls { server: &self.control, own }
    }
}

/// The loss of the received model on the participant's own data.
fn loss(evaluated: &[(String, MetricValue)]) -> Result<f64, WorkError> {
    let loss = evaluated.iter().find(|(name, _)| name == "loss").and_then(|(_, value)| value.measured());
    loss.ok_or(WorkError::NoLoss)
}
