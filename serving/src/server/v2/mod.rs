//! The Open Inference Protocol v2 over HTTP (as in KServe, Triton, Seldon and OpenVINO), with its extension for binary
//! data.
//!
//! Two further routes: `POST /tributary/models/{model}/rollback` and `/metrics`.

mod asked;
mod bodies;
mod columns;
mod flat;
mod infer;
mod outputs;
mod problem;
mod signatures;
mod tensors;

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use http::{HeaderMap, StatusCode, Uri, header};
use hyper::body::Incoming;
use listener::simple::{Answers, Peer};
use serde::Serialize;
use serde_json::json;
use task_spec::TableSpec;
use wire::admin::Role;
use wire::problem::{Problem, ProblemType};

use super::access::{Access, is_of_this_machine};
use super::model::Loaded;
use super::served::{NotRolledBack, Served};
use super::shared::Serving;
use asked::{Result, admitted, in_memory, sender};
pub(super) use bodies::Bodies;
use problem::Refusal;
pub use signatures::{Datatype, Signature, TensorMetadata, signature};

/// The request handler of the listener: a fast path for predictions, and the router for everything else.
#[derive(Clone)]
pub(super) struct Api {
    serving: Arc<Serving>,
    router: Router,
}

impl Api {
    pub(super) fn new(serving: Arc<Serving>) -> Self {
        Self { router: router(Arc::clone(&serving)), serving }
    }
}

impl Answers for Api {
    async fn answer(self, request: http::Request<Incoming>, peer: Peer) -> Response {
        let Self { serving, router } = self;
        let (head, body) = request.into_parts();
        let Some((name, version)) = infer::named(&head.method, head.uri.path()) else {
            return router.answer(http::Request::from_parts(head, body), peer).await;
        };
        if let Some(refusal) = of_elsewhere(&serving, &head.headers, &head.uri) {
            return refusal.into_response();
        }
        infer::counted(&serving, peer, name, version, &head.headers, body).await
    }
}

/// All routes. Health needs no credentials.
fn router(serving: Arc<Serving>) -> Router {
    Router::new()
        .route("/v2", get(server))
        .route("/v2/health/live", get(live))
        .route("/v2/health/ready", get(ready))
        .route("/v2/models/{model}", get(model))
        .route("/v2/models/{model}/ready", get(model_ready))
        .route("/v2/models/{model}/infer", post(infer::infer))
        .route("/v2/models/{model}/versions/{version}", get(version))
        .route("/v2/models/{model}/versions/{version}/ready", get(version_ready))
        .route("/v2/models/{model}/versions/{version}/infer", post(infer::infer_version))
        .route("/tributary/models/{model}/rollback", post(roll_back))
        .route("/metrics", get(metrics))
        .route("/openapi.json", get(document))
        .fallback(async || Refusal::new(ProblemType::NotFound, "there is no such path here"))
        .method_not_allowed_fallback(async || {
            Refusal::new(ProblemType::MethodNotAllowed, "the path does not take this method")
        })
        .layer(axum::middleware::from_fn_with_state(Arc::clone(&serving), local))
        .with_state(serving)
}

/// On unauthenticated listeners, rejects requests sent by web pages.
async fn local(State(serving): State<Arc<Serving>>, request: Request, next: Next) -> Response {
    match of_elsewhere(&serving, request.headers(), request.uri()) {
        Some(refusal) => refusal.into_response(),
        None => next.run(request).await,
    }
}

/// The rejection of a request sent by a web page.
fn of_elsewhere(serving: &Serving, headers: &HeaderMap, target: &Uri) -> Option<Refusal> {
    let is_open = matches!(serving.access, Access::Everybody);
    let is_refused = is_open && !is_of_this_machine(headers, target);
    let detail = "without tokens and certificates of clients it answers programs on this machine, by the address or as localhost, and no pages of sites";
    is_refused.then(|| Refusal::new(ProblemType::Forbidden, detail))
}

/// Routes of the plain-HTTP listener for health and metrics.
pub(super) fn health_router(serving: Arc<Serving>) -> Router {
    Router::new()
        .route("/v2/health/live", get(live))
        .route("/v2/health/ready", get(ready))
        .route("/metrics", get(all_metrics))
        .with_state(serving)
}

/// The API as OpenAPI.
async fn document() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], include_str!("openapi.json"))
}

async fn live() -> Json<serde_json::Value> {
    Json(json!({ "live": true }))
}

async fn ready(State(serving): State<Arc<Serving>>) -> Response {
    let waits: Vec<_> =
        serving.models.iter().filter(|served| served.answering().is_empty()).map(|served| &served.name).collect();
    if waits.is_empty() {
        return Json(json!({ "ready": true })).into_response();
    }
    (StatusCode::SERVICE_UNAVAILABLE, Json(json!({ "ready": false }))).into_response()
}

async fn server(
    State(serving): State<Arc<Serving>>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
) -> Result<Json<serde_json::Value>> {
    serving.access.admit(sender(&headers, peer), Role::Predictor, None).await?;
    let version = env!("CARGO_PKG_VERSION");
    Ok(Json(json!({ "name": "tributary", "version": version, "extensions": ["binary_tensor_data"] })))
}

#[derive(Serialize)]
struct ModelMetadata {
    name: String,
    versions: Vec<String>,
    platform: String,
    #[serde(flatten)]
    tensors: Signature,
    /// The columns that it takes in place of its input, and what it predicts.
    #[serde(skip_serializing_if = "Option::is_none")]
    table: Option<TableSpec>,
}

fn metadata(served: &Served, loaded: &Loaded, versions: Vec<u32>) -> Json<ModelMetadata> {
    Json(ModelMetadata {
        name: served.name.clone(),
        versions: versions.iter().map(u32::to_string).collect(),
        platform: format!("tributary_{}", loaded.architecture().kind()),
        tensors: loaded.signature().clone(),
        table: loaded.table().cloned(),
    })
}

async fn model(
    State(serving): State<Arc<Serving>>,
    Extension(peer): Extension<Peer>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Json<ModelMetadata>> {
    let (served, _) = admitted(&serving, &headers, peer, Role::Predictor, &name).await?;
    Ok(metadata(served, &*in_memory(served, None)?, served.answering()))
}

async fn version(
    State(serving): State<Arc<Serving>>,
    Extension(peer): Extension<Peer>,
    Path((name, version)): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<Json<ModelMetadata>> {
    let (served, _) = admitted(&serving, &headers, peer, Role::Predictor, &name).await?;
    let loaded = in_memory(served, Some(&version))?;
    Ok(metadata(served, &loaded, vec![loaded.version]))
}

#[derive(Serialize)]
struct Ready {
    name: String,
    ready: bool,
}

async fn model_ready(
    State(serving): State<Arc<Serving>>,
    Extension(peer): Extension<Peer>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Json<Ready>> {
    let (served, _) = admitted(&serving, &headers, peer, Role::Predictor, &name).await?;
    in_memory(served, None)?;
    Ok(Json(Ready { name, ready: true }))
}

async fn version_ready(
    State(serving): State<Arc<Serving>>,
    Extension(peer): Extension<Peer>,
    Path((name, version)): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<Json<Ready>> {
    let (served, _) = admitted(&serving, &headers, peer, Role::Predictor, &name).await?;
    in_memory(served, Some(&version))?;
    Ok(Json(Ready { name, ready: true }))
}

async fn roll_back(
    State(serving): State<Arc<Serving>>,
    Extension(peer): Extension<Peer>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Json<serde_json::Value>> {
    let (served, _) = admitted(&serving, &headers, peer, Role::Operator, &name).await?;
    let version = served.roll_back().await.map_err(|error| {
        let kind = match error {
            NotRolledBack::NoWayBack(_) | NotRolledBack::Previous { .. } => ProblemType::Conflict,
            NotRolledBack::Draining => ProblemType::Unavailable,
        };
        Refusal::from(Problem::new(kind, error.to_string()))
    })?;
    Ok(Json(json!({ "name": name, "version": version.to_string() })))
}

async fn metrics(
    State(serving): State<Arc<Serving>>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
) -> Result<String> {
    serving.access.admit(sender(&headers, peer), Role::Viewer, None).await?;
    Ok(serving.metrics())
}

async fn all_metrics(State(serving): State<Arc<Serving>>) -> String {
    serving.metrics()
}
