//! `GET /v1/participants` and `/v1/participants/{participant}`.

use std::sync::Arc;

use axum::extract::State;
use federation::id::ParticipantId;
use store::entity::participant::ParticipantRow;
use store::{StoreError, Transaction};
use wire::inspect::{Page, ParticipantView};
use wire::route;

use super::{PageQuery, page};
use crate::http::app::App;
use crate::http::extract::{Json, Path, Query};
use crate::http::operators::Viewer;
use crate::http::problem::{Error, Result};

/// List participants.
#[utoipa::path(
    get, path = route::PARTICIPANTS, params(PageQuery), security(("token" = ["viewer"])),
    responses((status = 200, body = Page<ParticipantView>)),
)]
pub(in crate::http) async fn list(
    _: Viewer,
    State(app): State<Arc<App>>,
    Query(query): Query<PageQuery>,
) -> Result<Json<Page<ParticipantView>>> {
    let (limit, cursor) = (query.limit()?, query.cursor::<ParticipantId>()?);
    let views = app
        .store
        .read("list_participants", |tx| {
            Box::pin(async move {
                let mut views = Vec::new();
                for row in tx.participants(cursor, limit + 1).await? {
                    views.push(view(tx, row).await?);
                }
                Ok::<_, StoreError>(views)
            })
        })
        .await?;
    Ok(Json(page(views, limit, |view| view.id.to_string(), |view| view)))
}

/// Get one participant.
#[utoipa::path(
    get, path = route::PARTICIPANT, security(("token" = ["viewer"])),
    responses((status = 200, body = ParticipantView)),
)]
pub(in crate::http) async fn show(
    _: Viewer,
    State(app): State<Arc<App>>,
    Path(participant): Path<ParticipantId>,
) -> Result<Json<ParticipantView>> {
    let found = app.store.read("show_participant", |tx| Box::pin(async move { read(tx, participant).await })).await?;
    found.map(Json).ok_or_else(|| Error::NotFound(format!("there is no participant {participant}")))
}

pub(in crate::http) async fn read(
    tx: &mut Transaction<'_>,
    participant: ParticipantId,
) -> std::result::Result<Option<ParticipantView>, StoreError> {
    match tx.participant(participant).await? {
        Some(row) => view(tx, row).await.map(Some),
        None => Ok(None),
    }
}

async fn view(tx: &mut Transaction<'_>, row: ParticipantRow) -> std::result::Result<ParticipantView, StoreError> {
    Ok(ParticipantView {
        participations: tx.participations(row.id).await?,
        id: row.id,
        name: row.name,
        labels: row.labels,
        enrolled_at: row.enrolled_at,
        certificate_expires_at: row.certificate_expires_at,
        revoked_at: row.revoked_at,
        last_seen_at: Some(row.last_seen_at),
    })
}
