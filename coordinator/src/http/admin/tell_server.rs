//! `PUT` and `DELETE /v1/tasks/{task}/servers/{server}`: a server of models says what it does, or that it stops. Whoever may read the
//! task may say so, under any name: the coordinator goes by none of it, and forgets it soon. That a server begins and that it stops are
//! events of the task, with whose token said so.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use http::StatusCode;
use store::entity::model_server::ModelServer;
use wire::inspect::{ServerReport, is_server_name};
use wire::route;

use crate::http::app::App;
use crate::http::extract::{Path, read_json};
use crate::http::operators::{OfTask, Viewer};
use crate::http::problem::{Error, Result};

/// How long a report counts: four times as long as servers are silent.
const COUNTS: Duration = Duration::from_secs(120);
/// Most servers of a task that count at once.
const SERVERS_MAX: u32 = 100;
/// Most bytes of a report.
const REPORT_MAX_BYTES: u64 = 8192;

/// Say what a server of models does with the task's model.
///
/// It is listed for two minutes.
#[utoipa::path(
    put, path = route::TASK_SERVER, request_body = ServerReport, security(("token" = ["viewer"])),
    responses((status = 204), (status = 409)),
)]
pub(in crate::http) async fn tell(
    OfTask { bearer, task, .. }: OfTask<Viewer>,
    Path((_, name)): Path<(String, String)>,
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<StatusCode> {
    if !is_server_name(&name) {
        let detail = "the name of a server of models has 1 to 128 letters, digits, `-`, `_`, `.` or `:`";
        return Err(Error::InvalidValue(detail.to_owned()));
    }
    let (parts, body) = request.into_parts();
    let report: ServerReport = read_json(&parts.headers, body, REPORT_MAX_BYTES).await?;
    report.check().map_err(Error::InvalidValue)?;
    let now = app.now();
    let report = serde_json::to_string(&report).map_err(Error::fault)?;
    let server = &ModelServer { task: task.id, name, report, told_at: now, expires_at: now.plus(COUNTS) };
    let actor = &bearer.actor();
    let told = app.store.transact("tell_model_server", |tx| {
        Box::pin(async move {
            tx.act_for(actor.clone());
            tx.put_model_server(server, SERVERS_MAX).await
        })
    });
    if told.await? {
        return Ok(StatusCode::NO_CONTENT);
    }
    let detail = format!("{SERVERS_MAX} other servers have told of this task in the last {} s", COUNTS.as_secs());
    Err(Error::Conflict(detail))
}

/// Say that a server of models stops.
///
/// It is listed no more.
#[utoipa::path(
    delete, path = route::TASK_SERVER, security(("token" = ["viewer"])), responses((status = 204)),
)]
pub(in crate::http) async fn leave(
    OfTask { bearer, task, .. }: OfTask<Viewer>,
    Path((_, name)): Path<(String, String)>,
    State(app): State<Arc<App>>,
) -> Result<StatusCode> {
    let (task, name, actor, now) = (task.id, name.as_str(), &bearer.actor(), app.now());
    let left = app.store.transact("remove_model_server", |tx| {
        Box::pin(async move {
            tx.act_for(actor.clone());
            tx.remove_model_server(task, name, now).await
        })
    });
    left.await?;
    Ok(StatusCode::NO_CONTENT)
}
