//! `POST /v1/participants/{participant}/revoke`: rejects its certificates from now on, even on open connections.

use std::sync::Arc;

use axum::extract::State;
use federation::id::ParticipantId;
use store::WakeEvent;
use wire::inspect::ParticipantView;
use wire::route;

use crate::http::app::App;
use crate::http::auth::operators::Operator;
use crate::http::extract::Path;
use crate::http::inspect::participants;
use crate::http::reply::etag::{IfMatch, Tagged};
use crate::http::reply::problem::{Error, Result};
use crate::observe::count_dropped;

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
    let (is_news, view, rounds, phases) = app
        .store
        .transact("revoke_participant", |tx| {
            Box::pin(async move {
                tx.act_for(actor.clone());
                if if_match.asks() {
                    if_match.check(&participants::read(tx, participant).await?.ok_or_else(unknown)?)?;
                }
                let is_news = tx.revoke_participant(participant, now).await?;
                let rounds = if is_news {
                    tx.remove_check_ins(&[participant]).await?;
                    tx.revoke_pending(participant, now).await?
                } else {
                    Vec::new()
                };
                let mut phases = Vec::new();
                for round in &rounds {
                    phases.extend(tx.round(*round).await?.map(|row| row.round.state));
                }
                // Idempotent: a repeated request succeeds.
                let view = participants::read(tx, participant).await?;
                Ok::<_, Error>((is_news, view.ok_or_else(unknown)?, rounds, phases))
            })
        })
        .await?;
    phases.into_iter().for_each(|phase| count_dropped(phase, "revoked", 1));
    app.identities.forget(participant);
    app.check_ins.forget(participant);
    for round in rounds {
        app.store.wake().publish(WakeEvent::Round(round));
    }
    app.store.wake().publish(WakeEvent::Work);
    if is_news {
        let operator = &bearer.name;
        tracing::info!(%participant, operator, "participant {participant} revoked by operator {operator:?}");
    }
    Ok(Tagged(view))
}
