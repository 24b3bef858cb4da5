//! Keys for rounds that collect them before the draw.

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
use crate::http::reply::problem::{Error, Result};
use crate::rounds::session::round_name;

/// Validates the keys in a check-in by the protocol. Only valid ones are stored, so a roster is valid by construction.
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
    // Keys are independent of the round's base model.
    let phase = CollectKeys::new(name, [0; 32], SessionConfig::from(&invitation.terms)).map_err(Error::fault)?;
    let authority = Authority::new(app.members.certificate().to_vec(), app.now());
    phase.admit(advertise, &authority).map_err(rejected)?;
    let advertisement = keys.advertisement.0.clone().into();
    Ok(CheckInKeys { attempt: keys.attempt_key(), advertisement })
}
