//! Adaptive μ of FedProx, from the losses of earlier rounds.

use std::collections::HashMap;

use federation::id::{RoundKey, TaskId};
use federation::round::RoundState;
use learning::proximal;
use listener::PoisonFreeMutex;
use store::{StoreError, Transaction};
use task_spec::{AdaptiveMu, TrainingPlan};

/// Number of rounds whose losses determine μ.
const LOOK_BACK: u32 = 100_000;

/// A task's training plan in a round, with that round's μ.
///
/// # Errors
/// [`StoreError`].
pub(crate) async fn plan_of_round(
    tx: &mut Transaction<'_>,
    plan: &TrainingPlan,
    round: RoundKey,
) -> Result<TrainingPlan, StoreError> {
    let Some(adaptive) = &plan.adaptive_mu else { return Ok(plan.clone()) };
    let rows = tx.rounds(round.task, Some(round.number), LOOK_BACK).await?;
    let completed = rows.iter().rev().filter(|row| row.round.state == RoundState::Completed);
    let losses = completed.filter_map(|row| row.metrics.iter().find(|metric| metric.name == adaptive.metric));
    let AdaptiveMu { step, patience, .. } = *adaptive;
    let rule = proximal::AdaptiveMu { start: plan.proximal_mu, step, patience };
    // Above 1/η a step towards the start overshoots: the loss rises, and would raise μ without bound.
    let most = (1.0 / plan.learning_rate).max(plan.proximal_mu);
    let mu = rule.after(losses.map(|metric| metric.value)).min(most);
    Ok(TrainingPlan { proximal_mu: mu, ..plan.clone() })
}

/// Cache of the μ of each task's current round, needed by every participant of the round.
#[derive(Default)]
pub(crate) struct ProximalSchedule(PoisonFreeMutex<HashMap<TaskId, (u32, f64)>>);

impl ProximalSchedule {
    /// [`plan_of_round`], computed once per round.
    ///
    /// # Errors
    /// [`StoreError`].
    pub(crate) async fn plan_of_round(
        &self,
        tx: &mut Transaction<'_>,
        plan: &TrainingPlan,
        round: RoundKey,
    ) -> Result<TrainingPlan, StoreError> {
        if plan.adaptive_mu.is_none() {
            return Ok(plan.clone());
        }
        if let Some(&(number, mu)) = self.0.lock().get(&round.task)
            && number == round.number
        {
            return Ok(TrainingPlan { proximal_mu: mu, ..plan.clone() });
        }
        let plan = plan_of_round(tx, plan, round).await?;
        self.0.lock().insert(round.task, (round.number, plan.proximal_mu));
        Ok(plan)
    }
}
