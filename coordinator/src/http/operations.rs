//! Operational endpoints: liveness, readiness and metrics.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use http::header;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use wire::route;

use super::app::App;
use super::auth::authenticate::AnyPeer;
use super::auth::operators::Viewer;
use super::reply::problem::{Error, Result};
use super::times::Times;
use crate::observe::health::NotReady;
use crate::observe::rendered;

/// Endpoints for the deployment.
pub(super) fn routes(times: Times) -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(times.short(routes!(healthz)))
        .routes(times.short(routes!(readyz)))
        .routes(times.short(routes!(metrics)))
        .routes(times.short(routes!(openapi)))
}

/// The same for a separate listener, without tokens.
pub(super) fn routes_apart(times: Times) -> Router<Arc<App>> {
    routes_of_liveness(times).route(route::METRICS, times.short_undescribed(get(metrics_apart)))
}

/// Endpoints for a balancer.
pub(super) fn routes_of_liveness(times: Times) -> Router<Arc<App>> {
    Router::new()
        .route(route::HEALTHZ, times.short_undescribed(get(healthz)))
        .route(route::READYZ, times.short_undescribed(get(readyz)))
}

/// Liveness.
///
/// The only answer without a rate limit: it is cheap, and a coordinator that is checked too often must not look dead.
#[utoipa::path(
    get, path = route::HEALTHZ, responses((status = 200, body = String)),
)]
pub(super) async fn healthz() -> &'static str {
    "ok\n"
}

/// Readiness: rows and blobs can be written; `degraded` if a task cannot continue.
///
/// A task that cannot continue does not affect others: the answer is then still 200, with one line per reason. It comes within two seconds,
/// also where the database or the blobs do not answer.
#[utoipa::path(
    get, path = route::READYZ, responses((status = 200, body = String)),
)]
pub(super) async fn readyz(_: AnyPeer, State(app): State<Arc<App>>) -> Result<String> {
    if app.shutdown.is_cancelled() {
        return Err(Error::ShuttingDown);
    }
    match app.health.check(&app.store, &app.sealer, &app.clock).await {
        Ok(problems) if problems.is_empty() => Ok("ready\n".to_owned()),
        Ok(problems) => Ok(format!("degraded\n{}\n", problems.join("\n"))),
        // The details are in the log.
        Err(NotReady::Malformed) => Err(Error::Damaged(
            "the database is malformed: stop the coordinator and restore a backup, see docs/OPERATIONS.md".to_owned(),
        )),
        Err(NotReady::Unwritable(what, source)) => Err(Error::NotReady { what, source }),
        Err(NotReady::Silent(what, within)) => Err(Error::Silent { what, within }),
    }
}

/// Metrics for Prometheus; without a token on the separate health listener.
///
/// Counters of uploads reveal cohort sizes, which only viewers of rounds may know.
#[utoipa::path(
    get, path = route::METRICS, security(("token" = ["viewer"])), responses((status = 200, body = String)),
)]
pub(super) async fn metrics(_: Viewer, State(app): State<Arc<App>>) -> String {
    rendered(&app.metrics, &*app.aggregator)
}

/// `GET /metrics` on the health listener.
pub(super) async fn metrics_apart(_: AnyPeer, State(app): State<Arc<App>>) -> String {
    rendered(&app.metrics, &*app.aggregator)
}

/// Get this OpenAPI document.
#[utoipa::path(
    get, path = route::OPENAPI, responses((status = 200, body = inline(Value), content_type = "application/json")),
)]
pub(super) async fn openapi(_: AnyPeer, State(app): State<Arc<App>>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], app.document.text()).into_response()
}
