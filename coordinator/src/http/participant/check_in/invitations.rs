//! Keys received for rounds that collect them before they draw.

use federation::id::ParticipantId;
use secure_agg::messages::Advertise;
use secure_agg::params::SessionConfig;
use secure_agg::rejection::MessageRejection;
use secure_agg::server::CollectKeys;
use store::entity::check_in::CheckInKeys;
use wire::certificate::Authority;
use wire::participant::{CheckInRequest, Invitation};

use crate::http::app::App;
use crate::http::participant::answers::{decode, rejected};
use crate::http::problem::{Error, Result};
use crate::session::round_name;

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
