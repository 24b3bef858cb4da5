//! `PUT` and `DELETE /v1/tasks/{task}/servers/{server}`: a model server reports its state, or its shutdown. Any reader of the task may
//! report, under any name: the coordinator bases no decision on reports, and they expire. The first report and the shutdown are events of
//! the task, with the token's bearer as actor. The log keeps events for ever, so their rate is limited for each token.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use federation::time::Timestamp;
use http::StatusCode;
use store::Transaction;
use store::entity::model_server::ModelServer;
use wire::inspect::{ServerReport, is_server_name};
use wire::route;

use crate::http::app::App;
use crate::http::auth::operators::{Bearer, OfTask, Viewer};
use crate::http::extract::{Path, read_json};
use crate::http::reply::problem::{Error, Result};

/// Validity of a report: four times the reporting interval.
const COUNTS: Duration = Duration::from_secs(120);
/// Maximum number of current servers of a task.
const SERVERS_MAX: u32 = 100;
/// Maximum size of a report in bytes.
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
    let (app, bearer) = (&*app, &bearer);
    let told = app.store.transact("tell_model_server", |tx| {
        Box::pin(async move {
            tx.act_for(bearer.actor());
            let is_listed = tx.put_model_server(server, SERVERS_MAX).await?;
            count_noted(tx, app, bearer, now)?;
            Ok::<_, Error>(is_listed)
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
    let (app, bearer, task, name, now) = (&*app, &bearer, task.id, name.as_str(), app.now());
    let left = app.store.transact("remove_model_server", |tx| {
        Box::pin(async move {
            tx.act_for(bearer.actor());
            tx.remove_model_server(task, name, now).await?;
            count_noted(tx, app, bearer, now)
        })
    });
    left.await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Counts a transaction with an event against the bearer's limit.
///
/// # Errors
/// [`Error::RateLimited`]: the bearer has used up its 200 at once and one a second.
fn count_noted(tx: &Transaction<'_>, app: &App, bearer: &Bearer, now: Timestamp) -> Result<()> {
    if tx.noted_events() == 0 {
        return Ok(());
    }
    app.log_limiter.admit(bearer.key(), now).map_err(Error::RateLimited)
}
