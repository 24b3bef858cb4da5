//! `POST /v1/tasks/{task}/models/{version}/restore`: publishes an earlier model version again, as the newest.

use std::sync::Arc;

use axum::extract::State;
use federation::time::Timestamp;
use store::entity::model_version::StoredVersion;
use store::entity::task::TaskRow;
use store::{Transaction, WakeEvent};
use wire::inspect::ModelView;
use wire::route;

use crate::http::app::App;
use crate::http::auth::operators::{OfTask, Operator};
use crate::http::extract::Path;
use crate::http::inspect::{models, tasks};
use crate::http::reply::etag::{IfMatch, Tagged};
use crate::http::reply::problem::{Error, Result};
use crate::maintenance::retention::retire;
use crate::records::provenance::{self, Signer};
use crate::rounds::ahead::outdated;

/// Publish an earlier model version again: the next round starts from it.
///
/// What the server optimizer remembered comes back with the version before the newest; with older ones it starts anew. No round may be in progress; pause the task, and wait until its round has ended. Answers with the version that was made. `If-Match` names the task.
#[utoipa::path(
    post, path = route::MODEL_RESTORE, params(IfMatch), security(("token" = ["operator"])),
    responses((status = 200, body = ModelView), (status = 409), (status = 410), (status = 412)),
)]
pub(in crate::http) async fn restore(
    OfTask { bearer, task, .. }: OfTask<Operator>,
    State(app): State<Arc<App>>,
    if_match: IfMatch,
    Path((_, version)): Path<(String, u32)>,
) -> Result<Tagged<ModelView>> {
    let (id, terms, now) = (task.id, tasks::ViewTerms::of(&app), app.now());
    let (actor, if_match) = (&bearer.actor(), &if_match);
    let signer = app.signer();
    let (row, outdated) = app
        .store
        .transact("restore_version", |tx| {
            Box::pin(async move {
                tx.act_for(actor.clone());
                let vanished = || Error::fault("a task vanished");
                if if_match.asks() {
                    if_match.check(&tasks::read(tx, id, terms, now).await?.ok_or_else(vanished)?)?;
                }
                let task = tx.task(id).await?.ok_or_else(vanished)?;
                let row = again(tx, signer, &task, version, now).await?;
                Ok::<_, Error>((row, outdated(tx, id, now).await?))
            })
        })
        .await?;
    let wake = app.store.wake();
    wake.publish(WakeEvent::Work);
    wake.publish(WakeEvent::Task(id));
    if !outdated.is_empty() {
        wake.publish(WakeEvent::Assigned(outdated.into()));
    }
    let (operator, newest) = (&bearer.name, row.model.version);
    tracing::warn!(
        task = %id, version, newest, operator,
        "model version {version} of task {id} restored as {newest} by {operator}"
    );
    Ok(Tagged(models::view(row)))
}

async fn again(
    tx: &mut Transaction<'_>,
    signer: Signer<'_>,
    task: &TaskRow,
    version: u32,
    now: Timestamp,
) -> Result<StoredVersion> {
    let earlier = models::stored(tx, task.id, version).await?;
    models::must_be_kept(&earlier)?;
    let newest = models::stored(tx, task.id, task.model_version).await?;
    // Idempotent: a repeated request succeeds.
    if newest.model.restored_from() == Some(version) {
        return Ok(newest);
    }
    if version == task.model_version {
        return Err(Error::Conflict(format!("version {version} is the newest: the next round starts from it anyway")));
    }
    if task.status.is_terminal() {
        return Err(Error::TaskStatus(task.status));
    }
    if let Some(row) = tx.round(task.next_round()).await?.filter(|row| !row.round.state.is_terminal()) {
        return Err(Error::Conflict(format!(
            "round {} is in progress, from version {}: pause the task, and restore the version when the round has ended",
            row.round.key.round, row.round.base_version
        )));
    }
    let mut made = earlier.model.again(task.model_version.saturating_add(1), newest.model.round, now);
    // Older optimizer states are deleted: see `Transaction::blob_references`.
    if version.saturating_add(1) < task.model_version {
        made.optimizer_state = None;
    }
    provenance::publish(tx, signer, task, &made, None).await?;
    tx.task_advanced(task.id, task.rounds_completed, made.version).await?;
    retire(tx, &TaskRow { model_version: made.version, ..task.clone() }, now).await?;
    models::stored(tx, task.id, made.version).await
}
