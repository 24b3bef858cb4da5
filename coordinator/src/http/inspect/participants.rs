//! `GET /v1/participants` and `/v1/participants/{participant}`.

use std::sync::Arc;

use axum::extract::State;
use federation::id::ParticipantId;
use serde::Deserialize;
use store::entity::participant::{ParticipantFilter, ParticipantRow};
use store::{StoreError, Transaction};
use utoipa::IntoParams;
use wire::inspect::{Page, ParticipantState, ParticipantView};
use wire::route;

use super::narrow::{When, labels};
use super::{List, PageQuery, page};
use crate::http::app::App;
use crate::http::auth::operators::Viewer;
use crate::http::extract::{Json, Path, Query};
use crate::http::reply::etag::{IfNoneMatch, Revised, Tagged};
use crate::http::reply::problem::{Error, Result};

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct ParticipantsQuery {
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
    /// Items per page, 1 to 500; default 50.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<u32>,
    /// A label as `NAME=VALUE`; may be repeated, and then all must be there.
    label: Vec<String>,
    /// Only those that are `active`, or only those that are `revoked`; default all.
    #[param(inline)]
    state: Option<ParticipantState>,
    /// Only those that enrolled then or later.
    #[param(inline)]
    since: Option<When>,
}

/// List participants.
#[utoipa::path(
    get, path = route::PARTICIPANTS, params(ParticipantsQuery), security(("token" = ["viewer"])),
    responses((status = 200, body = Page<ParticipantView>)),
)]
pub(in crate::http) async fn list(
    _: Viewer,
    State(app): State<Arc<App>>,
    Query(ParticipantsQuery { cursor, limit, label, state, since }): Query<ParticipantsQuery>,
) -> Result<Json<Page<ParticipantView>>> {
    let paging = PageQuery { cursor, limit };
    let (limit, cursor) = (paging.limit()?, paging.place::<ParticipantId>(List::Participants)?);
    let is_revoked = state.map(|state| match state {
        ParticipantState::Active => false,
        ParticipantState::Revoked => true,
    });
    let since = since.map(|When(since)| since);
    let filter = &ParticipantFilter { labels: labels(&label)?, is_revoked, since };
    let views = app
        .store
        .read("list_participants", |tx| {
            Box::pin(async move {
                let mut views = Vec::new();
                for row in tx.participants(filter, cursor, limit + 1).await? {
                    views.push(view(tx, row).await?);
                }
                Ok::<_, StoreError>(views)
            })
        })
        .await?;
    Ok(Json(page(List::Participants, views, limit, |view| view.id, |view| view)))
}

/// Get one participant.
#[utoipa::path(
    get, path = route::PARTICIPANT, params(IfNoneMatch), security(("token" = ["viewer"])),
    responses((status = 200, body = ParticipantView), (status = 304, description = "it shows the same still")),
)]
pub(in crate::http) async fn show(
    _: Viewer,
    State(app): State<Arc<App>>,
    Path(participant): Path<ParticipantId>,
) -> Result<Tagged<ParticipantView>> {
    let found = app.store.read("show_participant", |tx| Box::pin(async move { read(tx, participant).await })).await?;
    found.map(Tagged).ok_or_else(|| Error::NotFound(format!("there is no participant {participant}")))
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

impl Revised for ParticipantView {
    /// Excludes check-ins and draws.
    fn revision(&self) -> serde_json::Result<Vec<u8>> {
        let Self {
            id,
            name,
            labels,
            enrolled_at,
            certificate_expires_at,
            revoked_at,
            last_seen_at: _,
            participations: _,
        } = self;
        serde_json::to_vec(&(id, name, labels, enrolled_at, certificate_expires_at, revoked_at))
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
