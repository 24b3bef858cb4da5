//! Rounds that collect keys before they draw, and received keys.

use federation::id::ParticipantId;
use federation::round::RoundState;
use secure_agg::messages::Advertise;
use secure_agg::params::SessionConfig;
use secure_agg::rejection::MessageRejection;
use secure_agg::server::CollectKeys;
use store::entity::check_in::CheckInKeys;
use store::entity::task::TaskRow;
use store::{StoreError, Transaction};
use wire::certificate::Authority;
use wire::participant::{CheckInRequest, Declined, Invitation, SessionTerms};

use crate::base;
use crate::base::next_round;
use crate::http::app::App;
use crate::http::participant::answers::{decode, rejected};
use crate::http::problem::{Error, Result};
use crate::session::round_name;

/// The rounds of these tasks that collect keys: those with secure aggregation that have not drawn yet.
pub(super) async fn invitations<'a>(
    app: &App,
    tx: &mut Transaction<'_>,
    tasks: impl Iterator<Item = &'a TaskRow> + Send,
    participant: ParticipantId,
    declined: Option<Declined>,
) -> Result<Vec<Invitation>, StoreError> {
    let mut invitations = Vec::new();
    for task in tasks.filter(|task| task.spec.secure_aggregation.enabled) {
        let Some(row) = tx.round(next_round(task)).await? else { continue };
        let round = &row.round;
        if round.state != RoundState::Selecting {
            continue;
        }
        // It has said that it makes none; it waits for a round that it may take part in.
        if declined.is_some_and(|declined| declined.task == task.id && declined.sent >= round.key.round) {
            continue;
        }
        // Whoever was not sampled is not in this round, whatever happens.
        if round.limits.sampled.is_some() && !tx.is_sampled(round.key, participant).await? {
            continue;
        }
        let base = base::read(tx, task, round.base_version).await?;
        let plan = app.mus.plan_of_round(tx, &task.spec.training, round.key.round_key()).await?;
        let model = app.models.of(task)?;
        let told = base.and_then(|base| {
            let config = model.session_in(&task.spec, base.terms(), &plan)?;
            Some((config, model.base_digest(base.version.sha256)))
        });
        let (config, base) =
            told.ok_or_else(|| StoreError::corrupt(format!("task {} cannot work as it is stored", task.id)))?;
        invitations.push(Invitation {
            task: task.id,
            round: row.round.key.round,
            attempt: row.round.key.attempt,
            terms: SessionTerms::from(&config),
            base,
        });
    }
    Ok(invitations)
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
