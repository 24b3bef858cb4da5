//! What the people and machines that run the service ask: is it up, can it serve, what does it measure.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::header;
use wire::route;

use super::app::App;
use super::authenticate::{Anybody, Viewer};
use super::problem::{Error, Result};
use crate::observe::health::NotReady;

/// The process is up.
///
/// The one answer without a limit: it costs nothing, and whoever is asked too often must not look dead.
#[utoipa::path(
    get, path = route::HEALTHZ, responses((status = 200, body = String)),
)]
pub(super) async fn healthz() -> &'static str {
    "ok\n"
}

/// The process can serve: rows and blobs can be written; `degraded` if a task cannot go on.
///
/// A task that cannot go on does not keep others from being served: then the answer is 200 all the same, and says why, a line for
/// each.
#[utoipa::path(
    get, path = route::READYZ, responses((status = 200, body = String)),
)]
pub(super) async fn readyz(_: Anybody, State(app): State<Arc<App>>) -> Result<String> {
    if app.shutdown.is_cancelled() {
        return Err(Error::ShuttingDown);
    }
    match app.health.check(&app.store, &app.behind, || app.now()).await {
        Ok(problems) if problems.is_empty() => Ok("ready\n".to_owned()),
        Ok(problems) => Ok(format!("degraded\n{}\n", problems.join("\n"))),
        // What is wrong with it is in the log.
        Err(NotReady::Malformed) => Err(Error::Damaged(
            "the database is malformed: stop the coordinator and restore a backup, see docs/OPERATIONS.md".to_owned(),
        )),
        Err(NotReady::Unwritable(what, source)) => Err(Error::NotReady { what, source }),
    }
}

/// Metrics for Prometheus; without a token on the listener for the service's own.
///
/// Counters of uploads tell how large cohorts are, which only those may know who may look at rounds.
#[utoipa::path(
    get, path = route::METRICS, security(("token" = ["viewer"])), responses((status = 200, body = String)),
)]
pub(super) async fn metrics(_: Viewer, State(app): State<Arc<App>>) -> String {
    rendered(&app)
}

/// `GET /metrics` on the listener of those who look after the service.
pub(super) async fn metrics_apart(_: Anybody, State(app): State<Arc<App>>) -> String {
    rendered(&app)
}

/// This document.
#[utoipa::path(
    get, path = route::OPENAPI, responses((status = 200, body = inline(Value), content_type = "application/json")),
)]
pub(super) async fn openapi(_: Anybody, State(app): State<Arc<App>>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], app.document.text()).into_response()
}

fn rendered(app: &App) -> String {
    // Folds what histograms gathered, which would grow otherwise.
    app.metrics.run_upkeep();
    app.metrics.render()
}
