//! Invitations to rounds that collect keys before the draw.

use std::collections::HashMap;

use federation::id::{Attempt, TaskId};
use listener::PoisonFreeMutex;
use store::entity::open_task::SelectingRound;
use store::entity::task::TaskRow;
use store::{Store, StoreError};
use wire::participant::{Invitation, SessionTerms};

use crate::rounds::base;
use crate::rounds::models::Models;
use crate::rounds::proximal::ProximalSchedule;

/// Cache of the invitation to each task's current attempt, needed by every participant of the round. Its inputs are immutable.
#[derive(Default)]
pub(crate) struct Invitations(PoisonFreeMutex<HashMap<TaskId, Invitation>>);

impl Invitations {
    /// The invitation to a selecting round.
    ///
    /// # Errors
    /// Errors of the store; `Corrupt` if the stored task is invalid.
    pub(crate) async fn of(
        &self,
        store: &Store,
        models: &Models,
        mus: &ProximalSchedule,
        task: &TaskRow,
        round: SelectingRound,
    ) -> Result<Invitation, StoreError> {
        let SelectingRound { attempt, base_version, opened_at: _ } = round;
        if let Some(known) = self.0.lock().get(&task.id)
            && known.attempt_key() == attempt
        {
            return Ok(known.clone());
        }
        let model = models.of(task)?;
        let told = store.read("invitation", |tx| {
            Box::pin(async move {
                let base = base::read(tx, task, base_version).await?;
                let plan = mus.plan_of_round(tx, &task.spec.training, attempt.round_key()).await?;
                Ok::<_, StoreError>((base, plan))
            })
        });
        let (base, plan) = told.await?;
        let config = base.and_then(|base| model.session_in(&task.spec, base.terms(), &plan));
        let config =
            config.ok_or_else(|| StoreError::corrupt(format!("task {} cannot work as it is stored", task.id)))?;
        let terms = SessionTerms::new(&config, task.spec.batch_size());
        let Attempt { task, round, attempt } = attempt;
        let invitation = Invitation { task, round, attempt, terms };
        self.0.lock().insert(task, invitation.clone());
        Ok(invitation)
    }
}
