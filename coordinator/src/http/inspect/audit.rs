//! `GET /v1/audit`, `/v1/audit/export` and `/v1/audit/key`: the log of all events, and its verification key.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use federation::event::EventKind;
use futures_util::{StreamExt as _, stream};
use http::header;
use serde::Deserialize;
use store::StoreError;
use store::entity::event::{ActorFilter, EventFilter, EventSearch};
use task_spec::is_name;
use utoipa::IntoParams;
use uuid::Uuid;
use wire::audit::{AuditKeyView, EventView, FORMAT, Head, Header, Line};
use wire::inspect::Page;
use wire::route;

use super::narrow::{When, named};
use super::page::{List, PageQuery, page};
use crate::http::app::App;
use crate::http::auth::operators::{InScope, Viewer};
use crate::http::extract::{Json, Query};
use crate::http::reply::problem::{Error, Result};
use crate::records::audit::{self, entry};

/// Entries read at once for an export.
const PIECE: u32 = 500;

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct AuditQuery {
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
    /// Items per page, 1 to 500; default 50.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<u32>,
    /// Only entries about this task, by id or name.
    task: Option<String>,
    /// Kinds of events, separated by commas; default all.
    kind: Option<String>,
    /// Only what happened then or later.
    #[param(inline)]
    since: Option<When>,
    /// Only what happened before then.
    #[param(inline)]
    until: Option<When>,
    /// Only what somebody did: the name or id of an operator's token, the id of a participant, the SHA-256 of an identity, or
    /// `coordinator`.
    actor: Option<String>,
}

/// List the audit log, newest first.
#[utoipa::path(
    get, path = route::AUDIT, params(AuditQuery), security(("token" = ["viewer"])),
    responses((status = 200, body = Page<EventView>), (status = 404)),
)]
pub(in crate::http) async fn list(
    InScope(bearer): InScope,
    State(app): State<Arc<App>>,
    Query(query): Query<AuditQuery>,
) -> Result<Json<Page<EventView>>> {
    let AuditQuery { cursor, limit, task, kind, since, until, actor } = query;
    let paging = PageQuery { cursor, limit };
    let (limit, before) = (paging.limit()?, paging.place::<u64>(List::Events)?);
    let task = match task {
        Some(named) => Some(app.task_within(&bearer.scope, &named).await?.id),
        None => None,
    };
    let (kinds, since) = (kinds(kind.as_deref())?, since.map(|When(since)| since));
    let filter = EventFilter { task, kinds, since, scope: bearer.scope };
    let actors = actor.as_deref().map(actors_named).transpose()?.unwrap_or_default();
    let search = &EventSearch { filter, until: until.map(|When(until)| until), actors };
    let rows = app
        .store
        .read("list_events", |tx| Box::pin(async move { tx.events_before(before, search, limit + 1).await }))
        .await?;
    Ok(Json(page(List::Events, rows, limit, |row| row.position, |row| entry(row).into())))
}

/// Get the key that signs the audit log, and the newest signed head.
#[utoipa::path(
    get, path = route::AUDIT_KEY, security(("token" = ["viewer"])), responses((status = 200, body = AuditKeyView)),
)]
pub(in crate::http) async fn key(_: Viewer, State(app): State<Arc<App>>) -> Result<Json<AuditKeyView>> {
    let head = last_head(&app).await?;
    Ok(Json(AuditKeyView { key: app.sealer.audit_key(), head }))
}

/// Export the audit log up to its newest signed head, for `tributary audit verify`.
#[utoipa::path(
    get, path = route::AUDIT_EXPORT, security(("token" = ["viewer"])),
    responses((status = 200, body = String, content_type = "application/x-ndjson")),
)]
pub(in crate::http) async fn export(_: Viewer, State(app): State<Arc<App>>) -> Result<Response> {
    let head = last_head(&app).await?;
    let (key, end) = match &head {
        Some(head) => (head.key, head.position),
        None => (app.sealer.audit_key(), 0),
    };
    let header = Line::Header(Header { format: FORMAT, key }).text();
    let entries = stream::try_unfold((app, 0), move |(app, after)| async move {
        if after >= end {
            return Ok(None);
        }
        let limit = u32::try_from(end - after).unwrap_or(PIECE).min(PIECE);
        let read = app.store.read("export_events", |tx| {
            Box::pin(async move { tx.events_after(after, &EventFilter::default(), limit).await })
        });
        let rows = read.await?;
        let Some(last) = rows.last().map(|row| row.position) else { return Ok(None) };
        let text: String = rows.into_iter().map(|row| Line::Entry(entry(row)).text()).collect();
        Ok::<_, StoreError>(Some((Bytes::from(text), (app, last))))
    });
    let head = head.map(|head| Ok(Bytes::from(Line::Head(head).text())));
    let body = stream::iter([Ok(Bytes::from(header))]).chain(entries).chain(stream::iter(head));
    let headers = [
        (header::CONTENT_TYPE, "application/x-ndjson"),
        (header::CONTENT_DISPOSITION, "attachment; filename=\"audit.ndjson\""),
    ];
    Ok((headers, Body::from_stream(body)).into_response())
}

async fn last_head(app: &App) -> Result<Option<Head>> {
    let row = app.store.read("last_head", |tx| Box::pin(async move { tx.last_audit_head().await })).await?;
    row.map(|row| audit::head(&row).ok_or_else(|| Error::fault("a head has a key or signature of another length")))
        .transpose()
}

/// The actors matching a query's parameter.
fn actors_named(named: &str) -> Result<Vec<ActorFilter>> {
    if let Ok(id) = named.parse::<Uuid>() {
        return Ok(vec![ActorFilter::Id(id.to_string())]);
    }
    if !is_name(named) {
        return Err(Error::InvalidValue(
            "actor: the name or id of an operator's token, the id of a participant, the SHA-256 of an identity, or coordinator"
                .to_owned(),
        ));
    }
    // A token may have any name, including one of these words.
    let other = match named {
        "coordinator" => ActorFilter::Coordinator,
        digest => ActorFilter::Id(digest.to_ascii_lowercase()),
    };
    Ok(vec![ActorFilter::Name(named.to_owned()), other])
}

/// The event kinds in a query.
pub(super) fn kinds(names: Option<&str>) -> Result<Vec<EventKind>> {
    named("kind", names, &EventKind::ALL)
}
