//! Invitations to rounds that collect keys before they draw.

use std::collections::HashMap;

use federation::id::{Attempt, TaskId};
use store::entity::open_task::SelectingRound;
use store::entity::task::TaskRow;
use store::{Store, StoreError};
use wire::participant::{Invitation, SessionTerms};

use crate::base;
use crate::guarded::Guarded;
use crate::models::Models;
use crate::proximal::ProximalSchedule;

/// Cache of the invitation of each task's current attempt, which every participant of the round needs. What it is made of
/// never changes.
#[derive(Default)]
pub(crate) struct Invitations(Guarded<HashMap<TaskId, Invitation>>);

impl Invitations {
    /// The invitation to a round that has not drawn yet.
    ///
    /// # Errors
    /// The store's; `Corrupt` if the task cannot work as it is stored.
    pub(crate) async fn of(
        &self,
        store: &Store,
        models: &Models,
        mus: &ProximalSchedule,
        task: &TaskRow,
        round: SelectingRound,
    ) -> Result<Invitation, StoreError> {
        let SelectingRound { attempt, base_version } = round;
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
        let told = base.and_then(|base| {
            let config = model.session_in(&task.spec, base.terms(), &plan)?;
            Some((config, model.base_digest(base.version.sha256)))
        });
        let (config, base) =
            told.ok_or_else(|| StoreError::corrupt(format!("task {} cannot work as it is stored", task.id)))?;
        let Attempt { task, round, attempt } = attempt;
        let invitation = Invitation { task, round, attempt, terms: SessionTerms::from(&config), base };
        self.0.lock().insert(task, invitation.clone());
        Ok(invitation)
    }
}
