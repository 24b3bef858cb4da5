//! `POST /v1/tasks/{task}/models/{version}/pin` and `…/unpin`: exempts a version from the task's retention, or ends that.

use std::sync::Arc;

use axum::extract::State;
use federation::id::TaskId;
use store::WakeEvent;
use wire::inspect::ModelView;
use wire::route;

use crate::http::app::App;
use crate::http::auth::operators::{Bearer, OfTask, Operator};
use crate::http::extract::Path;
use crate::http::inspect::models;
use crate::http::reply::etag::{IfMatch, Tagged};
use crate::http::reply::problem::Result;
use crate::maintenance::retention::retire;

/// Keep a model version.
#[utoipa::path(
    post, path = route::MODEL_PIN, params(IfMatch), security(("token" = ["operator"])),
    responses((status = 200, body = ModelView), (status = 410), (status = 412)),
)]
pub(in crate::http) async fn pin(
    OfTask { bearer, task, .. }: OfTask<Operator>,
    State(app): State<Arc<App>>,
    if_match: IfMatch,
    Path((_, version)): Path<(String, u32)>,
) -> Result<Tagged<ModelView>> {
    set(&app, &bearer, &if_match, (task.id, version), true).await
}

/// Keep a model version no longer than the task retains others.
#[utoipa::path(
    post, path = route::MODEL_UNPIN, params(IfMatch), security(("token" = ["operator"])),
    responses((status = 200, body = ModelView), (status = 410), (status = 412)),
)]
pub(in crate::http) async fn unpin(
    OfTask { bearer, task, .. }: OfTask<Operator>,
    State(app): State<Arc<App>>,
    if_match: IfMatch,
    Path((_, version)): Path<(String, u32)>,
) -> Result<Tagged<ModelView>> {
    set(&app, &bearer, &if_match, (task.id, version), false).await
}

async fn set(
    app: &App,
    bearer: &Bearer,
    if_match: &IfMatch,
    (id, version): (TaskId, u32),
    is_pinned: bool,
) -> Result<Tagged<ModelView>> {
    let now = app.now();
    let actor = &bearer.actor();
    let row = app
        .store
        .transact("pin_version", |tx| {
            Box::pin(async move {
                tx.act_for(actor.clone());
                let before = models::stored(tx, id, version).await?;
                if_match.check(&models::view(before.clone()))?;
                models::must_be_kept(&before)?;
                // Idempotent: a repeated request keeps the time of the first.
                if before.pinned_at.is_some() != is_pinned {
                    tx.pin_version(id, version, is_pinned, now).await?;
                }
                if !is_pinned && let Some(task) = tx.task(id).await? {
                    retire(tx, &task, now).await?;
                }
                models::stored(tx, id, version).await
            })
        })
        .await?;
    app.store.wake().publish(WakeEvent::Work);
    let (operator, done) = (&bearer.name, if is_pinned { "pinned" } else { "unpinned" });
    tracing::info!(task = %id, version, operator, "model version {version} of task {id} {done} by {operator}");
    Ok(Tagged(models::view(row)))
}
