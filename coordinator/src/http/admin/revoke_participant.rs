//! `POST /v1/participants/{participant}/revoke`: rejects its certificates from now on, even on open connections.

use std::sync::Arc;

use axum::extract::State;
use federation::id::ParticipantId;
use wire::inspect::ParticipantView;
use wire::route;

use crate::http::app::App;
use crate::http::auth::operators::Operator;
use crate::http::extract::Path;
use crate::http::inspect::participants;
use crate::http::participant::withdraw::Revocation;
use crate::http::reply::etag::{IfMatch, Tagged};
use crate::http::reply::problem::{Error, Result};

/// Revoke a participant.
#[utoipa::path(
    post, path = route::PARTICIPANT_REVOKE, params(IfMatch), security(("token" = ["operator"])),
    responses((status = 200, body = ParticipantView), (status = 412)),
)]
pub(in crate::http) async fn revoke_participant(
    Operator(bearer): Operator,
    State(app): State<Arc<App>>,
    if_match: IfMatch,
    Path(participant): Path<ParticipantId>,
) -> Result<Tagged<ParticipantView>> {
    let (now, actor, if_match) = (app.now(), &bearer.actor(), &if_match);
    let unknown = || Error::NotFound(format!("there is no participant {participant}"));
    let (revocation, view) = app
        .store
        .transact("revoke_participant", |tx| {
            Box::pin(async move {
                tx.act_for(actor.clone());
                if if_match.asks() {
                    if_match.check(&participants::read(tx, participant).await?.ok_or_else(unknown)?)?;
                }
                let revocation = Revocation::of(tx, participant, now).await?;
                // Idempotent: a repeated request succeeds.
                let view = participants::read(tx, participant).await?;
                Ok::<_, Error>((revocation, view.ok_or_else(unknown)?))
            })
        })
        .await?;
    if revocation.take_effect(&app) {
        let operator = &bearer.name;
        tracing::info!(%participant, operator, "participant {participant} revoked by operator {operator:?}");
    }
    Ok(Tagged(view))
}
