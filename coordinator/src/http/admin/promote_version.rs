//! `POST /v1/tasks/{task}/models/{version}/promote`: the version that is to be used.

use std::sync::Arc;

use axum::extract::State;
use wire::inspect::TaskView;
use wire::route;

use crate::http::app::App;
use crate::http::authenticate::Operator;
use crate::http::extract::{Json, Path};
use crate::http::inspect::{models, tasks};
use crate::http::problem::{Error, Result};

/// Choose the model version that is to be used, in place of any chosen before. Its file stays.
#[utoipa::path(
    post, path = route::MODEL_PROMOTE, security(("token" = ["operator"])), responses((status = 200, body = TaskView)),
)]
pub(in crate::http) async fn promote(
    Operator(bearer): Operator,
    State(app): State<Arc<App>>,
    Path((task, version)): Path<(String, u32)>,
) -> Result<Json<TaskView>> {
    let (id, now) = (app.task(&task).await?.id, app.now());
    let actor = &bearer.actor();
    let view = app
        .store
        .transact("promote_version", |tx| {
            Box::pin(async move {
                tx.act_for(actor.clone());
                models::downloadable(tx, id, version).await?;
                let row = tx.task(id).await?.ok_or_else(|| Error::fault("a task vanished"))?;
                // Idempotent: a second request finds it done.
                if row.promoted_version != Some(version) {
                    tx.promote_version(id, version, now).await?;
                }
                tasks::read(tx, id, now).await?.ok_or_else(|| Error::fault("a task vanished"))
            })
        })
        .await?;
    let operator = &bearer.name;
    tracing::info!(task = %id, version, operator, "model version {version} of task {id} promoted by {operator}");
    Ok(Json(view))
}
