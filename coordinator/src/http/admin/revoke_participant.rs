//! `POST /v1/participants/{participant}/revoke`: rejects its certificates from now on, even on open connections.

use std::sync::Arc;

use axum::extract::State;
use federation::id::ParticipantId;
use store::WakeEvent;
use wire::inspect::ParticipantView;
use wire::route;

use crate::http::app::App;
use crate::http::extract::{Json, Path};
use crate::http::inspect::participants;
use crate::http::operators::Operator;
use crate::http::problem::{Error, Result};

/// Revoke a participant.
#[utoipa::path(
    post, path = route::PARTICIPANT_REVOKE, security(("token" = ["operator"])),
    responses((status = 200, body = ParticipantView)),
)]
pub(in crate::http) async fn revoke_participant(
    Operator(bearer): Operator,
    State(app): State<Arc<App>>,
    Path(participant): Path<ParticipantId>,
) -> Result<Json<ParticipantView>> {
    let (now, actor) = (app.now(), &bearer.actor());
    let (view, rounds) = app
        .store
        .transact("revoke_participant", |tx| {
            Box::pin(async move {
                tx.act_for(actor.clone());
                let rounds = if tx.revoke_participant(participant, now).await? {
                    tx.remove_check_ins(&[participant]).await?;
                    tx.revoke_pending(participant, now).await?
                } else {
                    Vec::new()
                };
                // Idempotent: a second request finds it done.
                let view = participants::read(tx, participant).await?;
                let view = view.ok_or_else(|| Error::NotFound(format!("there is no participant {participant}")))?;
                Ok::<_, Error>((view, rounds))
            })
        })
        .await?;
    app.identities.forget(participant);
    app.check_ins.forget(participant);
    for round in rounds {
        app.store.wake().publish(WakeEvent::Round(round));
    }
    app.store.wake().publish(WakeEvent::Work);
    tracing::info!(%participant, operator = bearer.name, "participant {participant} revoked by {}", bearer.name);
    Ok(Json(view))
}
