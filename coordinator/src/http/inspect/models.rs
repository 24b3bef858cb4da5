//! `GET /v1/tasks/{task}/models`, optionally waiting for a new version, and `…/models/{version}`.

use std::sync::Arc;

use axum::extract::State;
use federation::id::TaskId;
use federation::model_version::ModelVersion;
use serde::Deserialize;
use store::entity::model_version::StoredVersion;
use store::{Transaction, WakeEvent};
use utoipa::IntoParams;
use wire::inspect::{ModelView, Page};
use wire::provenance::SignedProvenance;
use wire::route;

use super::wait::{Wait, Woken};
use super::{List, PageQuery, page};
use crate::http::app::App;
use crate::http::auth::operators::{OfTask, Viewer};
use crate::http::extract::{Json, Path, Query};
use crate::http::reply::etag::{IfNoneMatch, Revised, Tagged};
use crate::http::reply::problem::{Error, Result};
use crate::records::provenance;

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct ModelsQuery {
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
    /// Items per page, 1 to 500; default 50.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<u32>,
    /// Wait until there is a newer version than this.
    after_version: Option<u32>,
    /// Maximum wait, in milliseconds; then the list is as it is.
    wait_ms: u64,
}

/// List model versions, newest first.
#[utoipa::path(
    get, path = route::MODELS, params(ModelsQuery), security(("token" = ["viewer"])),
    responses((status = 200, body = Page<ModelView>)),
)]
pub(in crate::http) async fn list(
    OfTask { task, .. }: OfTask<Viewer>,
    State(app): State<Arc<App>>,
    Query(ModelsQuery { cursor, limit, after_version, wait_ms }): Query<ModelsQuery>,
) -> Result<Json<Page<ModelView>>> {
    let paging = PageQuery { cursor, limit };
    let (limit, before) = (paging.limit()?, paging.place::<u32>(List::Models)?);
    let task = task.id;
    let mut wait = Wait::begin(&app, wait_ms);
    loop {
        let rows = app
            .store
            .read("list_models", |tx| Box::pin(async move { tx.stored_versions(task, before, limit + 1).await }))
            .await?;
        let is_awaited = |after: u32| rows.first().is_none_or(|newest| newest.model.version <= after);
        if after_version.is_some_and(is_awaited) && wait.next(|event| may_publish(event, task)).await == Woken::Changed
        {
            continue;
        }
        return Ok(Json(page(List::Models, rows, limit, |row| row.model.version, view)));
    }
}

/// Whether the event may mean a new version of the task, from an ended round or an operator.
fn may_publish(event: &WakeEvent, task: TaskId) -> bool {
    matches!(event, WakeEvent::Task(changed) if *changed == task)
        || matches!(event, WakeEvent::Round(round) if round.task == task)
}

/// Get one model version.
#[utoipa::path(
    get, path = route::MODEL, params(IfNoneMatch), security(("token" = ["viewer"])), responses((status = 200, body = ModelView), (status = 304, description = "it shows the same still")),
)]
pub(in crate::http) async fn show(
    OfTask { task, .. }: OfTask<Viewer>,
    State(app): State<Arc<App>>,
    Path((_, version)): Path<(String, u32)>,
) -> Result<Tagged<ModelView>> {
    let task = task.id;
    let row = app.store.read("show_model", |tx| Box::pin(async move { stored(tx, task, version).await })).await?;
    Ok(Tagged(view(row)))
}

/// Get where a model version comes from, signed by the key of the audit log.
#[utoipa::path(
    get, path = route::MODEL_PROVENANCE, security(("token" = ["viewer"])), responses((status = 200, body = SignedProvenance)),
)]
pub(in crate::http) async fn provenance(
    OfTask { task, .. }: OfTask<Viewer>,
    State(app): State<Arc<App>>,
    Path((_, version)): Path<(String, u32)>,
) -> Result<Json<SignedProvenance>> {
    let task = task.id;
    let record = app.store.read("show_provenance", |tx| {
        Box::pin(async move {
            stored(tx, task, version).await?;
            Ok::<_, Error>(provenance::of(tx, task, version).await?)
        })
    });
    let missing = || format!("model version {version} has no record: it was published before records were kept");
    record.await?.map(Json).ok_or_else(|| Error::NotFound(missing()))
}

/// A version of a task.
///
/// # Errors
/// `NotFound`; errors of the store.
pub(in crate::http) async fn stored(tx: &mut Transaction<'_>, task: TaskId, version: u32) -> Result<StoredVersion> {
    let row = tx.stored_version(task, version).await?;
    row.ok_or_else(|| Error::NotFound(format!("the task has no model version {version}")))
}

/// Checks that the version's file is kept.
///
/// # Errors
/// `VersionRemoved`.
pub(in crate::http) fn must_be_kept(row: &StoredVersion) -> Result<()> {
    if row.removed_at.is_some() { Err(Error::VersionRemoved(row.model.version)) } else { Ok(()) }
}

impl Revised for ModelView {}

pub(in crate::http) fn view(row: StoredVersion) -> ModelView {
    let StoredVersion { model, pinned_at, removed_at } = row;
    let ModelVersion { task, version, sha256, bytes, round, parent, created_at, .. } = model;
    ModelView { task, version, sha256, bytes, round, parent, created_at, pinned_at, removed_at }
}
