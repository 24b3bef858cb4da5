//! What an update of the task is besides the difference of two models, and what it weighs: by examples, by loss (q-FFL), by steps
//! (FedNova), or with a second half that is the change of a control variate (SCAFFOLD).

use std::borrow::Cow;
use std::sync::Arc;

use learning::contribution::fed_nova::Reach;
use learning::contribution::scaffold;
use learning::{Controls, Fairness, FedNova, Layout, MetricValue, Parameters, QFfl, QuantizationParams, Scaffold};
use task_spec::{Solver, TrainingPlan};
use wire::participant::Assignment;

use super::plan_error::{PlanError, WorkError};
use crate::pipeline::{PipelineError, Weight};
use crate::train::Constraints;
use crate::trainer::{Trained, Trainer, TrainingJob};

/// As the assignment says, checked.
pub(super) enum Rule {
    Examples,
    Loss(QFfl),
    Steps(FedNova),
    Controlled(Scaffold),
}

impl Rule {
    /// Of a task whose updates have this plain encoding.
    pub(super) fn new(assignment: &Assignment, params: &QuantizationParams) -> Result<Self, PlanError> {
        let plan = &assignment.training;
        if let Some(fair) = &plan.fairness {
            if assignment.encoding.solver.is_some() {
                return Err(PlanError::Solver("updates are to be weighed by loss as well".to_owned()));
            }
            let lipschitz = fair.lipschitz(plan.learning_rate);
            return Ok(Self::Loss(QFfl::new(Fairness { q: fair.q, lipschitz, loss_cap: fair.loss_cap }, params)?));
        }
        let Some(solver) = assignment.encoding.solver else { return Ok(Self::Examples) };
        if assignment.encoding.staleness.is_some() {
            return Err(PlanError::Solver("it does not go with updates that are trained ahead of rounds".to_owned()));
        }
        let steps = solver.steps().filter(|steps| (1..=crate::train::MAX_STEPS).contains(steps));
        let steps = steps.ok_or_else(|| PlanError::Solver("it must say steps, 1 to 10000000".to_owned()))?;
        let unsound = |error: &dyn std::fmt::Display| PlanError::Solver(error.to_string());
        match solver {
            // The plan of this round: whoever does all of it sends what it would send without.
            Solver::FedNova { .. } => {
                let plan = plan.in_round(assignment.round);
                let reference = reach(&plan, steps, |step| plan.step_factor(step));
                FedNova::new(reference, params).map(Self::Steps).map_err(|error| unsound(&error))
            }
            // The same in every round, or what is kept would be of another unit.
            Solver::Scaffold { .. } => {
                let whole = assignment.encoding.personalization.is_none() && assignment.model.personal.is_empty();
                let exact = assignment.encoding.compression.is_none() && plan.proximal_mu == 0.0;
                if !whole || !exact {
                    return Err(PlanError::Solver(
                        "scaffold does not go with personal tensors, a codec or a proximal term".to_owned(),
                    ));
                }
                let reference = reach(plan, steps, |_| 1.0);
                Scaffold::new(reference, params).map(Self::Controlled).map_err(|error| unsound(&error))
            }
        }
    }

    /// Whether this device keeps a control variate.
    pub(super) fn keeps_control(&self) -> bool {
        matches!(self, Self::Controlled(_))
    }

    /// What was received, as a model and, behind it, the coordinator's control variate.
    pub(super) fn open<'a>(&self, received: &'a Parameters, shared: &Arc<Layout>) -> Result<Received<'a>, WorkError> {
        if !self.keeps_control() {
            return Ok(Received { model: Cow::Borrowed(received), control: Vec::new() });
        }
        let (model, control) = scaffold::split(received, shared).map_err(|_| PipelineError::WrongLayout)?;
        Ok(Received { model: Cow::Owned(model), control })
    }

    /// Trains without personalization.
    pub(super) fn train(
        &self,
        received: &Received<'_>,
        own: &[f32],
        job: &TrainingJob,
        trainer: &mut dyn Trainer,
    ) -> Result<Trained, WorkError> {
        let Self::Controlled(rule) = self else { return Ok(trainer.train(&received.model, job)?) };
        let correction = rule.correction(received.controls(own)).map_err(PipelineError::from)?;
        let layout = Arc::clone(received.model.layout());
        let correction = Parameters::new(layout, correction).map_err(|_| PipelineError::WrongLayout)?;
        let constraints = Constraints { correction: Some(&correction), ..Constraints::default() };
        Ok(trainer.train_within(&received.model, job, constraints)?)
    }

    /// What the update counts for, and how it changes on its way.
    pub(super) fn weight<'a>(
        &'a self,
        trained: &Trained,
        evaluated: &[(String, MetricValue)],
        received: &'a Received<'_>,
        own: &'a [f32],
    ) -> Result<Weight<'a>, WorkError> {
        let reach = || trained.reach().ok_or(WorkError::NoReach);
        Ok(match self {
            Self::Examples => Weight::Examples(trained.examples),
            Self::Loss(rule) => Weight::Loss(rule, loss(evaluated)?),
            Self::Steps(rule) => Weight::Steps(rule, reach()?, trained.examples),
            Self::Controlled(rule) => Weight::Controlled(rule, reach()?, received.controls(own)),
        })
    }
}

/// The published file of one version, read.
pub(super) struct Received<'m> {
    pub(super) model: Cow<'m, Parameters>,
    /// Empty where there is none.
    control: Vec<f32>,
}

impl Received<'_> {
    fn controls<'a>(&'a self, own: &'a [f32]) -> Controls<'a> {
        Controls { server: &self.control, own }
    }
}

/// How far so many steps of a plan go.
fn reach(plan: &TrainingPlan, steps: u32, factor: impl Fn(u32) -> f64) -> f64 {
    let mut reach = Reach::new(plan.momentum, plan.proximal_mu);
    (0..steps).for_each(|step| reach.step(plan.learning_rate * factor(step)));
    reach.distance()
}

/// The loss of the received model on the participant's own data.
fn loss(evaluated: &[(String, MetricValue)]) -> Result<f64, WorkError> {
    let loss = evaluated.iter().find(|(name, _)| name == "loss").and_then(|(_, value)| value.measured());
    loss.ok_or(WorkError::NoLoss)
}
