//! What a task's solver makes of a round's mean before the server optimizer steps by it (FedNova, SCAFFOLD), and the μ that FedProx's
//! rule gives a round.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use federation::id::{RoundKey, TaskId};
use federation::round::RoundState;
use learning::contribution::{Scaffold, fed_nova, scaffold};
use learning::{FedNova, Layout, MeanUpdate, Parameters, QuantizationParams, proximal};
use store::{StoreError, Transaction};
use task_spec::{AdaptiveMu, Solver, SpecError, TrainingPlan};

/// Rounds whose losses μ is made of.
const LOOK_BACK: u32 = 100_000;

/// Whether participants will be able to follow it.
///
/// # Errors
/// Why not, for the field `training.solver`.
pub(crate) fn check(plan: &TrainingPlan, params: &QuantizationParams) -> Result<(), Vec<SpecError>> {
    let Some(solver) = plan.solver() else { return Ok(()) };
    let wrong = |problem: String| vec![SpecError { field: "training.solver".to_owned(), problem }];
    let proximal = plan.learning_rate * plan.proximal_mu;
    let reach = fed_nova::reach(solver.steps().unwrap_or_default(), plan.momentum, proximal);
    let reference = plan.learning_rate * reach.map_err(|error| wrong(error.to_string()))?;
    match solver {
        Solver::FedNova { .. } => FedNova::new(reference, params).map(drop).map_err(|error| wrong(error.to_string())),
        Solver::Scaffold { .. } => Scaffold::new(reference, params).map(drop).map_err(|error| wrong(error.to_string())),
    }
}

/// A published version as a step needs it.
pub(crate) struct Version {
    /// What the server optimizer steps.
    pub(crate) model: Parameters,
    /// The server's control variate; nothing without one.
    control: Option<Vec<f32>>,
}

impl Version {
    /// `read` is a file's content, of the layout that is published.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn new(solver: Option<Solver>, read: Parameters, model: &Arc<Layout>) -> Result<Self, String> {
        if !solver.is_some_and(|solver| solver.has_control()) {
            return Ok(Self { model: read, control: None });
        }
        let (model, control) = scaffold::split(&read, model).map_err(|error| error.to_string())?;
        Ok(Self { model, control: Some(control) })
    }

    /// Takes off the mean what is not the optimizer's: afterwards it is one of the model, with the task's metrics.
    ///
    /// # Errors
    /// What no honest participants could have made, in words.
    pub(crate) fn take(
        &mut self,
        solver: Option<Solver>,
        mean: &mut MeanUpdate,
        clip_range: f32,
    ) -> Result<(), String> {
        match (solver, &mut self.control) {
            (Some(Solver::FedNova { .. }), _) => FedNova::scale(mean).map(drop).map_err(|error| error.to_string()),
            (Some(Solver::Scaffold { population, .. }), Some(control)) => {
                Scaffold::absorb(control, mean, population, clip_range).map_err(|error| error.to_string())
            }
            _ => Ok(()),
        }
    }

    /// What is written: in the layout that is published.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn join(self, published: &Arc<Layout>) -> Result<Parameters, String> {
        let Some(control) = self.control else { return Ok(self.model) };
        let values = [self.model.values(), &control].concat();
        Parameters::new(Arc::clone(published), values).map_err(|error| error.to_string())
    }
}

/// How a task trains in a round: with the μ of that round, where it adapts.
///
/// # Errors
/// [`StoreError`].
pub(crate) async fn plan_of_round(
    tx: &mut (dyn Transaction + '_),
    plan: &TrainingPlan,
    round: RoundKey,
) -> Result<TrainingPlan, StoreError> {
    let Some(adaptive) = &plan.adaptive_mu else { return Ok(plan.clone()) };
    let rows = tx.rounds(round.task, Some(round.number), LOOK_BACK).await?;
    let completed = rows.iter().rev().filter(|row| row.round.state == RoundState::Completed);
    let losses = completed.filter_map(|row| row.metrics.iter().find(|metric| metric.name == adaptive.metric));
    let AdaptiveMu { step, patience, .. } = *adaptive;
    let rule = proximal::AdaptiveMu { start: plan.proximal_mu, step, patience };
    // Above 1/η a step towards the start goes beyond it: the loss rises, and would raise μ for ever.
    let most = (1.0 / plan.learning_rate).max(plan.proximal_mu);
    let mu = rule.after(losses.map(|metric| metric.value)).min(most);
    Ok(TrainingPlan { proximal_mu: mu, ..plan.clone() })
}

/// The μ of each task's present round: it follows from what is stored, and is asked for by every participant of the round.
#[derive(Default)]
pub(crate) struct Mus(Mutex<HashMap<TaskId, (u32, f64)>>);

impl Mus {
    /// [`plan_of_round`], read once for each round.
    ///
    /// # Errors
    /// [`StoreError`].
    pub(crate) async fn plan_of_round(
        &self,
        tx: &mut (dyn Transaction + '_),
        plan: &TrainingPlan,
        round: RoundKey,
    ) -> Result<TrainingPlan, StoreError> {
        if plan.adaptive_mu.is_none() {
            return Ok(plan.clone());
        }
        if let Some(&(number, mu)) = self.lock().get(&round.task)
            && number == round.number
        {
            return Ok(TrainingPlan { proximal_mu: mu, ..plan.clone() });
        }
        let plan = plan_of_round(tx, plan, round).await?;
        self.lock().insert(round.task, (round.number, plan.proximal_mu));
        Ok(plan)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<TaskId, (u32, f64)>> {
        // A map has no state between two of its calls that a panic could leave behind.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
