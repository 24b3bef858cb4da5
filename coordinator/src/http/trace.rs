//! The outermost layer of every request: id, log line, metrics, time limit, and problems instead of panics.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use federation::time::Clock;
use futures_util::FutureExt as _;
use http::{HeaderValue, Method};
use tokio::time::Instant;
use tracing::Instrument as _;
use wire::headers::{PROTOCOL, PROTOCOL_VERSION, PROTOCOL_VERSION_PARTS};

use super::app::App;
use super::reply::problem::Error;
use super::unserved::Unserved;
use crate::observe::{During, Traces};
use crate::oidc::CALLBACK;

/// Response header with the request's id.
const REQUEST_ID: &str = "x-request-id";

/// State shared by requests: ids with a random prefix per process and a counter, and logged failure reasons.
pub(super) struct Requests {
    clock: Arc<dyn Clock>,
    traces: Traces,
    prefix: String,
    next: AtomicU64,
    unserved: Unserved,
}

impl Requests {
    pub(super) fn new(app: &App) -> Self {
        let unserved = Unserved::new(Arc::clone(&app.clock));
        let prefix = hex::encode(app.random.bytes::<4>());
        let (clock, traces) = (Arc::clone(&app.clock), app.traces.clone());
        Self { clock, traces, prefix, next: AtomicU64::new(1), unserved }
    }

    fn name(&self) -> String {
        format!("{}-{}", self.prefix, self.next.fetch_add(1, Ordering::Relaxed))
    }
}

/// Wraps a request. Must be the outermost layer: it turns [`Error`]s into responses.
pub(super) async fn trace(State(requests): State<Arc<Requests>>, request: Request, next: Next) -> Response {
    let (id, began) = (requests.name(), Instant::now());
    let route = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str).to_owned();
    let method = request.method().clone();
    let followed = requests.traces.of_request(request.headers()).map(|of| (of, requests.clock.now()));
    let span = tracing::info_span!("request", request_id = %id, %method, route);
    let served = async {
        if let Err(error) = speaks_our_version(&request) {
            return error.into_response();
        }
        let answer = AssertUnwindSafe(next.run(request)).catch_unwind().await;
        answer.unwrap_or_else(|panic| Error::fault(describe(&*panic)).into_response())
    };
    let mut response = served.instrument(span.clone()).await;
    let entered = span.enter();
    if let Some(error) = response.extensions_mut().remove::<Arc<Error>>() {
        tracing::debug!("request {id} rejected: {error}");
        requests.unserved.tell(&error, &id);
        // A browser reaches the callback without the dashboard's scripts.
        response = if route == CALLBACK { error.respond_as_page(&id) } else { error.respond(&id) };
    }
    let status = response.status();
    tracing::debug!(status = status.as_u16(), "request {id} answered {status}");
    drop(entered);
    if let Some((of, began)) = followed {
        let during = During { began, ended: requests.clock.now() };
        requests.traces.request(of, method_label(&method), &route, status.as_u16(), during);
    }
    let took = began.elapsed();
    metrics::histogram!("tributary_request_seconds", "route" => route.clone(), "method" => method_label(&method))
        .record(took);
    metrics::counter!(
        "tributary_requests_total",
        "route" => route, "method" => method_label(&method), "status" => status.as_u16().to_string()
    )
    .increment(1);
    if let Ok(id) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    response
}

/// The method as a label, `other` if unknown: peers can invent methods, and labels persist.
fn method_label(method: &Method) -> &'static str {
    const KNOWN: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"];
    KNOWN.into_iter().find(|known| *known == method.as_str()).unwrap_or("other")
}

fn speaks_our_version(request: &Request) -> Result<(), Error> {
    let Some(version) = request.headers().get(PROTOCOL) else { return Ok(()) };
    let text = version.to_str().unwrap_or_default();
    match text.parse() {
        Ok(PROTOCOL_VERSION | PROTOCOL_VERSION_PARTS) => Ok(()),
        Ok(_) | Err(_) => Err(Error::Protocol(text.chars().take(16).collect())),
    }
}

fn describe(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("a handler panicked: {}", text.unwrap_or("no message"))
}

/// Limits the time to answer a request.
pub(super) async fn within(State(limit): State<Duration>, request: Request, next: Next) -> Response {
    match tokio::time::timeout(limit, next.run(request)).await {
        Ok(response) => response,
        Err(_) => Error::TooSlow.into_response(),
    }
}
