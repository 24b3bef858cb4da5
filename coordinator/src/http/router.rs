//! All routes.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::DefaultBodyLimit;
use axum::middleware::{from_fn_with_state, map_response};
use axum::routing::{MethodRouter, get};
use axum::{Router, response::Response};
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter};
use utoipa_axum::routes;
use wire::route;

use super::app::App;
use super::authenticate::Anybody;
use super::problem::Error;
use super::trace::{Names, trace, within};
use super::{admin, inspect, operations, participant};
use crate::config::HttpConfig;

/// The service, without a socket. Requests carry a [`super::Connection`] in their extensions.
///
/// `extract` and `masked_input` limit bodies, `authenticate` limits rates, and this router limits time.
pub(crate) fn router(app: Arc<App>) -> Router {
    let names = Arc::new(Names::new(&app));
    let (routes, described) = endpoints(&app.config.http).split_for_parts();
    app.document.write(&described);
    routes
        .fallback(|_: Anybody| async { Error::NotFound("there is no such path".to_owned()) })
        .method_not_allowed_fallback(|| async { Error::Method })
        .layer(DefaultBodyLimit::disable())
        .layer(map_response(hide))
        .layer(from_fn_with_state(names, trace))
        .with_state(app)
}

/// Every endpoint with its time limit. Path, method and description are next to its handler.
fn endpoints(config: &HttpConfig) -> OpenApiRouter<Arc<App>> {
    let short = |endpoint: Endpoint| limit_all(endpoint, config.request_timeout());
    let poll = |endpoint: Endpoint| limit_all(endpoint, config.poll_max() + config.request_timeout());
    let upload = |endpoint: Endpoint| limit_all(endpoint, config.upload_timeout());
    OpenApiRouter::new()
        // Participants, by certificate; enrolment by one-time token.
        .routes(short(routes!(participant::enroll::enroll)))
        .routes(short(routes!(participant::renew::renew)))
        .routes(poll(routes!(participant::check_in::check_in)))
        .routes(poll(routes!(participant::announcements::roster)))
        .routes(short(routes!(participant::answers::key_shares, participant::announcements::evidence)))
        .routes(poll(routes!(participant::announcements::delivery)))
        .routes(short(routes!(participant::answers::complaint)))
        .routes(poll(routes!(participant::announcements::survivors)))
        .routes(short(routes!(participant::answers::consistency)))
        .routes(poll(routes!(participant::announcements::agreement)))
        .routes(short(routes!(participant::answers::unmask_shares)))
        .routes(short(routes!(participant::abort_statements::say)))
        .routes(short(routes!(participant::abort_statements::show)))
        .routes(upload(routes!(participant::masked_input::masked_input)))
        .routes(short(routes!(participant::abandon::abandon)))
        .routes(short(routes!(participant::parameters::parameters)))
        // Operators, by token: read.
        .routes(short(routes!(inspect::tasks::list, admin::create_task::create_task)))
        .routes(short(routes!(inspect::tasks::show)))
        .routes(short(routes!(inspect::rounds::list)))
        .routes(poll(routes!(inspect::rounds::show)))
        .routes(short(routes!(inspect::assignments::list)))
        .routes(short(routes!(inspect::privacy::show)))
        .routes(short(routes!(inspect::privacy::total)))
        .routes(short(routes!(inspect::models::list)))
        .routes(short(routes!(inspect::models::show)))
        .routes(short(routes!(inspect::participants::list)))
        .routes(short(routes!(inspect::participants::show)))
        // Operators: change.
        .routes(short(routes!(admin::task_status::pause)))
        .routes(short(routes!(admin::task_status::resume)))
        .routes(short(routes!(admin::task_status::cancel)))
        .routes(short(routes!(admin::task_status::rebase)))
        .routes(short(routes!(admin::excuse::excuse)))
        .routes(short(routes!(admin::revoke_participant::revoke_participant)))
        .routes(short(routes!(admin::enrollment_tokens::create)))
        .routes(short(routes!(admin::operator_tokens::list, admin::operator_tokens::create)))
        .routes(short(routes!(admin::operator_tokens::revoke)))
        // Operations.
        .routes(short(routes!(operations::healthz)))
        .routes(short(routes!(operations::readyz)))
        .routes(short(routes!(operations::metrics)))
        .routes(short(routes!(operations::openapi)))
}

type Endpoint = UtoipaMethodRouter<Arc<App>>;

fn limit_all((schemas, paths, routes): Endpoint, time: Duration) -> Endpoint {
    (schemas, paths, limit(routes, time))
}

/// Operational endpoints for a separate listener.
pub(crate) fn health_router(app: Arc<App>) -> Router {
    let short = |routes: MethodRouter<Arc<App>>| limit(routes, app.config.http.request_timeout());
    let names = Arc::new(Names::new(&app));
    Router::new()
        .route(route::HEALTHZ, short(get(operations::healthz)))
        .route(route::READYZ, short(get(operations::readyz)))
        .route(route::METRICS, short(get(operations::metrics_apart)))
        .fallback(|_: Anybody| async { Error::NotFound("there is no such path".to_owned()) })
        .method_not_allowed_fallback(|| async { Error::Method })
        .layer(map_response(hide))
        .layer(from_fn_with_state(names, trace))
        .with_state(app)
}

fn limit(routes: MethodRouter<Arc<App>>, time: Duration) -> MethodRouter<Arc<App>> {
    routes.layer(from_fn_with_state(time, within))
}

/// Answers are private: caches must not store them unless a handler says otherwise.
async fn hide(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.entry(http::header::CACHE_CONTROL).or_insert(http::HeaderValue::from_static("no-store"));
    headers.insert(http::header::X_CONTENT_TYPE_OPTIONS, http::HeaderValue::from_static("nosniff"));
    response
}
