//! All routes, area by area.

use std::sync::Arc;

use axum::extract::DefaultBodyLimit;
use axum::middleware::{from_fn, from_fn_with_state, map_response};
use axum::{Router, response::Response};
use bytes::Bytes;
use listener::PoisonFreeMutex;
use utoipa_axum::router::OpenApiRouter;

use super::app::App;
use super::auth::authenticate::AnyPeer;
use super::auth::signed::{Gate, admit};
use super::openapi::{Document, Shapes};
use super::reply::compress::compress;
use super::reply::problem::Error;
use super::reply::shape::shape;
use super::times::Times;
use super::trace::{Requests, trace};
use super::{admin, dashboard, inspect, operations, participant};
use crate::config::HttpConfig;

/// The service, without a socket. Requests carry a [`super::Connection`] in their extensions.
///
/// `extract` and `masked_input` limit bodies, `authenticate` limits rates, and this router limits time.
pub(crate) fn router(app: Arc<App>) -> Router {
    let requests = Arc::new(Requests::new(&app));
    let Described { participants, operators, document, shapes, .. } = known_endpoints(&app.config.http);
    app.document.write(document);
    let pages = if app.config.http.dashboard { dashboard::routes(Times::new(&app.config.http)) } else { Router::new() };
    participants
        .merge(operators.route_layer(from_fn_with_state(shapes, shape)).route_layer(from_fn(compress)))
        .merge(pages)
        .fallback(|_: AnyPeer| async { Error::NotFound("there is no such path".to_owned()) })
        .method_not_allowed_fallback(|| async { Error::Method })
        .layer(DefaultBodyLimit::disable())
        .layer(map_response(hide))
        .layer(from_fn_with_state(requests, trace))
        .with_state(app)
}

/// Endpoints with these time limits, and their OpenAPI document.
#[derive(Clone)]
struct Described {
    times: Times,
    participants: Router<Arc<App>>,
    operators: Router<Arc<App>>,
    document: Bytes,
    shapes: Arc<Shapes>,
}

/// The endpoints of a configuration. Describing them takes milliseconds, the largest part of a simulated start, so the last ones are
/// cached.
fn known_endpoints(config: &HttpConfig) -> Described {
    static LAST: PoisonFreeMutex<Option<Described>> = PoisonFreeMutex::new(None);
    let times = Times::new(config);
    let mut last = LAST.lock();
    if let Some(known) = last.as_ref().filter(|known| known.times == times) {
        return known.clone();
    }
    let (participants, mut described) = participant::routes(times).split_for_parts();
    let (operators, theirs) = of_operators(times).split_for_parts();
    described.merge(theirs);
    let (document, shapes) = Document::of(&described);
    last.insert(Described { times, participants, operators, document, shapes: Arc::new(shapes) }).clone()
}

/// The contract as OpenAPI 3.1 in JSON. The response to `GET /openapi.json` is the same in every configuration.
#[must_use]
pub fn document() -> Bytes {
    known_endpoints(&HttpConfig::default()).document
}

/// All endpoints except participants', with their time limits. Each area lists its own; path, method and description are next to the
/// handler.
fn of_operators(times: Times) -> OpenApiRouter<Arc<App>> {
    inspect::routes(times).merge(admin::routes(times)).merge(operations::routes(times))
}

/// Participants' routes for the listener of signed requests, behind a TLS-terminating balancer. Operators' endpoints are absent there: see
/// [`super::auth::signed`].
pub(crate) fn signed_router(app: Arc<App>) -> Router {
    let requests = Arc::new(Requests::new(&app));
    let times = Times::new(&app.config.http);
    let (routes, _) = participant::routes(times).split_for_parts();
    routes
        .merge(operations::routes_of_liveness(times))
        .fallback(|_: AnyPeer| async {
            Error::NotFound("there is no such path for signed requests; operators' are at http.listen".to_owned())
        })
        .method_not_allowed_fallback(|| async { Error::Method })
        .layer(DefaultBodyLimit::disable())
        .layer(from_fn_with_state(Arc::new(Gate::new(Arc::clone(&app))), admit))
        .layer(map_response(hide))
        .layer(from_fn_with_state(requests, trace))
        .with_state(app)
}

/// Operational endpoints for a separate listener.
pub(crate) fn health_router(app: Arc<App>) -> Router {
    let requests = Arc::new(Requests::new(&app));
    operations::routes_apart(Times::new(&app.config.http))
        .fallback(|_: AnyPeer| async { Error::NotFound("there is no such path".to_owned()) })
        .method_not_allowed_fallback(|| async { Error::Method })
        .layer(map_response(hide))
        .layer(from_fn_with_state(requests, trace))
        .with_state(app)
}

/// Responses are private: caches must not store them unless a handler allows it.
async fn hide(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.entry(http::header::CACHE_CONTROL).or_insert(http::HeaderValue::from_static("no-store"));
    headers.insert(http::header::X_CONTENT_TYPE_OPTIONS, http::HeaderValue::from_static("nosniff"));
    response
}
