//! `POST /v1/tasks/{task}/models/{version}/pin` and `…/unpin`: whether a version stays stored whatever the task retains.

use std::sync::Arc;

use axum::extract::State;
use federation::id::TaskId;
use store::WakeEvent;
use wire::inspect::ModelView;
use wire::route;

use crate::http::app::App;
use crate::http::extract::{Json, Path};
use crate::http::inspect::models;
use crate::http::operators::{Bearer, OfTask, Operator};
use crate::http::problem::{Error, Result};
use crate::retention::retire;

/// Keep a model version.
#[utoipa::path(
    post, path = route::MODEL_PIN, security(("token" = ["operator"])), responses((status = 200, body = ModelView)),
)]
pub(in crate::http) async fn pin(
    OfTask { bearer, task, .. }: OfTask<Operator>,
    State(app): State<Arc<App>>,
    Path((_, version)): Path<(String, u32)>,
) -> Result<Json<ModelView>> {
    set(&app, &bearer, task.id, version, true).await
}

/// Keep a model version no longer than the task retains others.
#[utoipa::path(
    post, path = route::MODEL_UNPIN, security(("token" = ["operator"])), responses((status = 200, body = ModelView)),
)]
pub(in crate::http) async fn unpin(
    OfTask { bearer, task, .. }: OfTask<Operator>,
    State(app): State<Arc<App>>,
    Path((_, version)): Path<(String, u32)>,
) -> Result<Json<ModelView>> {
    set(&app, &bearer, task.id, version, false).await
}

async fn set(app: &App, bearer: &Bearer, id: TaskId, version: u32, is_pinned: bool) -> Result<Json<ModelView>> {
    let now = app.now();
    let actor = &bearer.actor();
    let row = app
        .store
        .transact("pin_version", |tx| {
            Box::pin(async move {
                tx.act_for(actor.clone());
                let unknown = || Error::NotFound(format!("the task has no model version {version}"));
                let before = tx.stored_version(id, version).await?.ok_or_else(unknown)?;
                if before.removed_at.is_some() {
                    return Err(Error::VersionRemoved(version));
                }
                // Idempotent: a second request finds it done, with the time of the first.
                if before.pinned_at.is_some() != is_pinned {
                    tx.pin_version(id, version, is_pinned, now).await?;
                }
                if !is_pinned && let Some(task) = tx.task(id).await? {
                    retire(tx, &task, now).await?;
                }
                tx.stored_version(id, version).await?.ok_or_else(unknown)
            })
        })
        .await?;
    app.store.wake().publish(WakeEvent::Work);
    let (operator, done) = (&bearer.name, if is_pinned { "pinned" } else { "unpinned" });
    tracing::info!(task = %id, version, operator, "model version {version} of task {id} {done} by {operator}");
    Ok(Json(models::view(row)))
}
