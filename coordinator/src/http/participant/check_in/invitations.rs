//! Rounds that collect keys before they draw, and received keys.

use std::collections::HashMap;

use federation::id::{Attempt, ParticipantId, TaskId};
use secure_agg::messages::Advertise;
use secure_agg::params::SessionConfig;
use secure_agg::rejection::MessageRejection;
use secure_agg::server::CollectKeys;
use store::StoreError;
use store::entity::check_in::CheckInKeys;
use store::entity::open_task::SelectingRound;
use store::entity::task::TaskRow;
use wire::certificate::Authority;
use wire::participant::{CheckInRequest, Invitation, SessionTerms};

use crate::base;
use crate::guarded::Guarded;
use crate::http::app::App;
use crate::http::participant::answers::{decode, rejected};
use crate::http::problem::{Error, Result};
use crate::session::round_name;

/// Cache of the invitation of each task's current attempt, which every participant of the round needs. What it is made of
/// never changes.
#[derive(Default)]
pub(crate) struct Invitations(Guarded<HashMap<TaskId, Invitation>>);

impl Invitations {
    /// The invitation to a round that has not drawn yet.
    ///
    /// # Errors
    /// The store's; `Corrupt` if the task cannot work as it is stored.
    pub(super) async fn of(&self, app: &App, task: &TaskRow, round: SelectingRound) -> Result<Invitation, StoreError> {
        let SelectingRound { attempt, base_version } = round;
        if let Some(known) = self.0.lock().get(&task.id)
            && known.attempt_key() == attempt
        {
            return Ok(known.clone());
        }
        let model = app.models.of(task)?;
        let told = app.store.read("invitation", |tx| {
            Box::pin(async move {
                let base = base::read(tx, task, base_version).await?;
                let plan = app.mus.plan_of_round(tx, &task.spec.training, attempt.round_key()).await?;
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

pub(super) fn has_keys_for(request: &CheckInRequest, invitation: &Invitation) -> bool {
    request.keys.as_ref().is_some_and(|keys| keys.attempt_key() == invitation.attempt_key())
}

/// Judges keys received with a check-in by the protocol. Only valid ones are stored, so that a roster can be made
/// without asking again.
pub(super) fn judge(
    app: &App,
    participant: ParticipantId,
    invitation: &Invitation,
    request: &CheckInRequest,
) -> Result<CheckInKeys> {
    let Some(keys) = &request.keys else { return Err(Error::fault("keys were found and are gone")) };
    let advertise: Advertise = decode(&keys.advertisement.0)?;
    if advertise.body.client_id.as_slice() != participant.0.as_bytes() {
        return Err(rejected(MessageRejection::Certificate));
    }
    let name = round_name(invitation.attempt_key());
    // Which model the round starts from makes no difference to keys.
    let phase = CollectKeys::new(name, [0; 32], SessionConfig::from(&invitation.terms)).map_err(Error::fault)?;
    let authority = Authority::new(app.members.certificate().to_vec(), app.now());
    phase.admit(advertise, &authority).map_err(rejected)?;
    let advertisement = keys.advertisement.0.clone().into();
    Ok(CheckInKeys { attempt: keys.attempt_key(), advertisement })
}
