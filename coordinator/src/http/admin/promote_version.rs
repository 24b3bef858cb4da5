//! `POST /v1/tasks/{task}/models/{version}/promote`: selects the version to use.

use std::sync::Arc;

use axum::extract::State;
use wire::inspect::TaskView;
use wire::route;

use crate::http::app::App;
use crate::http::auth::operators::{OfTask, Operator};
use crate::http::extract::Path;
use crate::http::inspect::{models, tasks};
use crate::http::reply::etag::{IfMatch, Tagged};
use crate::http::reply::problem::{Error, Result};

/// Choose the model version that is to be used, in place of any chosen before. Its file stays. `If-Match` names the task.
#[utoipa::path(
    post, path = route::MODEL_PROMOTE, params(IfMatch), security(("token" = ["operator"])),
    responses((status = 200, body = TaskView), (status = 409), (status = 410), (status = 412)),
)]
pub(in crate::http) async fn promote(
    OfTask { bearer, task, .. }: OfTask<Operator>,
    State(app): State<Arc<App>>,
    if_match: IfMatch,
    Path((_, version)): Path<(String, u32)>,
) -> Result<Tagged<TaskView>> {
    let (id, terms, now) = (task.id, tasks::ViewTerms::of(&app), app.now());
    let (actor, if_match) = (&bearer.actor(), &if_match);
    let view = app
        .store
        .transact("promote_version", |tx| {
            Box::pin(async move {
                tx.act_for(actor.clone());
                let vanished = || Error::fault("a task vanished");
                let before = tasks::read(tx, id, terms, now).await?.ok_or_else(vanished)?;
                if_match.check(&before)?;
                models::must_be_kept(&models::stored(tx, id, version).await?)?;
                // Idempotent: a repeated request succeeds.
                if before.promoted_version == Some(version) {
                    return Ok(before);
                }
                tx.promote_version(id, version, now).await?;
                tasks::read(tx, id, terms, now).await?.ok_or_else(vanished)
            })
        })
        .await?;
    let operator = &bearer.name;
    tracing::info!(task = %id, version, operator, "model version {version} of task {id} promoted by {operator}");
    Ok(Tagged(view))
}
