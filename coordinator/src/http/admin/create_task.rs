//! `POST /v1/tasks`: stores a task, its initial model version, and the answer under its idempotency key, in one
//! transaction.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use federation::event::Actor;
use federation::id::{Digest, TaskId};
use federation::model_version::ModelVersion;
use federation::task_status::TaskStatus;
use federation::time::Timestamp;
use http::{HeaderMap, StatusCode, header};
use recipe::TaskModel;
use store::entity::idempotency::IdempotentAnswer;
use store::entity::task::TaskRow;
use store::{Transaction, WakeEvent};
use task_spec::{Deployment, TaskSpec};
use utoipa::IntoParams;
use utoipa::openapi::path::{Parameter, ParameterIn};
use wire::admin::CreateTask;
use wire::headers::IDEMPOTENCY_KEY;
use wire::inspect::TaskView;
use wire::route;

use crate::http::app::App;
use crate::http::extract::{read, require_media_type};
use crate::http::inspect::tasks;
use crate::http::openapi::header;
use crate::http::operators::{Bearer, Operator, Who};
use crate::http::problem::{Error, Result};
use crate::ledger;

/// How long a repeated request gets the first answer.
const REMEMBER: Duration = Duration::from_secs(24 * 3600);

struct Headers;

impl IntoParams for Headers {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        vec![header(IDEMPOTENCY_KEY, false, "a repeated request gets the first one's answer")]
    }
}

/// Create a task.
#[utoipa::path(
    post, path = route::TASKS, params(Headers), request_body = CreateTask, security(("token" = ["operator"])),
    responses((status = 201, body = TaskView)),
)]
pub(in crate::http) async fn create_task(
    Operator(bearer): Operator,
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response> {
    require_media_type(&headers, "application/json")?;
    let key = idempotency_key(&headers, &bearer)?;
    let bytes = read(&headers, body, app.config.http.body_max_bytes).await?;
    let request_sha256 = crate::digest(&bytes);
    if let Some(key) = &key
        && let Some(answer) = answered(&app, key, request_sha256).await?
    {
        return respond(answer);
    }
    let CreateTask { spec } =
        serde_json::from_slice(&bytes).map_err(|error| Error::Malformed(format!("the body: {error}")))?;
    let (row, version) = prepare(&app, spec).await?;
    let (id, privacy) = (row.id, row.spec.privacy.clone());
    let answer = store(&app, (row, version), key.as_ref(), request_sha256, &bearer.actor()).await?;
    if privacy.is_private() {
        // A crash here leaves a new task; opening its first round completes the rest.
        let sealer = Arc::clone(&app.sealer);
        let keep = move || ledger::keep_promise(&sealer, id, &privacy);
        tokio::task::spawn_blocking(keep).await.map_err(Error::fault)??;
    }
    app.store.wake().publish(WakeEvent::Task(id));
    app.store.wake().publish(WakeEvent::Work);
    tracing::info!(task = %id, operator = bearer.name, "task {id} created by {}", bearer.name);
    respond(answer)
}

/// Location of a stored answer: the keys of different operators are separate.
struct Key {
    scope: String,
    key: String,
}

fn idempotency_key(headers: &HeaderMap, bearer: &Bearer) -> Result<Option<Key>> {
    let Some(value) = headers.get(IDEMPOTENCY_KEY) else { return Ok(None) };
    let text = value.to_str().ok().filter(|text| (1..=64).contains(&text.len()));
    let key =
        text.ok_or_else(|| Error::InvalidValue("idempotency-key: 1 to 64 printable ASCII characters".to_owned()))?;
    let whose = match &bearer.who {
        Who::Token(token) => token.to_string(),
        Who::Identity { subject_sha256, .. } => subject_sha256.to_string(),
    };
    Ok(Some(Key { scope: format!("create_task/{whose}"), key: key.to_owned() }))
}

async fn answered(app: &App, key: &Key, request_sha256: Digest) -> Result<Option<IdempotentAnswer>> {
    app.store.read("find_answer", |tx| Box::pin(async move { find_answer(tx, key, request_sha256).await })).await
}

async fn find_answer(tx: &mut Transaction<'_>, key: &Key, request_sha256: Digest) -> Result<Option<IdempotentAnswer>> {
    match tx.find_idempotent(&key.scope, &key.key).await? {
        Some(answer) if answer.request_sha256 != request_sha256 => {
            Err(Error::Conflict("this idempotency key came with another body before".to_owned()))
        }
        answer => Ok(answer),
    }
}

/// Validates the task and stores its initial model's blob.
async fn prepare(app: &App, spec: TaskSpec) -> Result<(TaskRow, ModelVersion)> {
    let deployment = Deployment { poll_interval_ms: app.config.http.poll_max_ms };
    spec.check(&deployment).map_err(Error::InvalidTask)?;
    let (spec, model) = tokio::task::spawn_blocking(move || {
        let mut spec = spec;
        TaskModel::complete(&mut spec).map_err(Error::InvalidTask)?;
        let model = TaskModel::new(&spec).map_err(Error::InvalidTask)?;
        Ok::<_, Error>((spec, model))
    })
    .await
    .map_err(Error::fault)??;
    if let Some(Err(error)) = model.private.as_ref().map(|private| private.opendp()) {
        let (field, problem) = ("privacy.sampler".to_owned(), error.to_string());
        return Err(Error::InvalidTask(vec![task_spec::SpecError { field, problem }]));
    }
    if model.packed_len() > app.config.http.masked_input_max_bytes {
        return Err(Error::InvalidTask(vec![task_spec::SpecError {
            field: "model.tensors".to_owned(),
            problem: format!(
                "an update has {} bytes, but this coordinator takes masked inputs of at most {}",
                model.packed_len(),
                app.config.http.masked_input_max_bytes
            ),
        }]));
    }
    let parameters = model.tensors.shared.len() as u64;
    let clip_at_first = model.private.as_ref().map(|private| private.initial_clip());
    // Drawing a large model takes seconds; requests are served meanwhile.
    let (spec, bytes) = tokio::task::spawn_blocking(move || {
        let bytes = model.first_version(&spec).map_err(Error::InvalidTask)?;
        Ok::<_, Error>((spec, bytes))
    })
    .await
    .map_err(Error::fault)??;
    let size = bytes.len() as u64;
    let sha256 = app.store.blobs().put_bytes(bytes.into()).await?;
    let (id, now) = (TaskId(app.random.uuid()), app.now());
    let row = TaskRow {
        id,
        spec,
        status: TaskStatus::Active,
        parameters,
        created_at: now,
        rounds_completed: 0,
        rounds_forfeited: 0,
        model_version: 0,
    };
    let version = ModelVersion {
        task: id,
        version: 0,
        sha256,
        bytes: size,
        round: None,
        parent: None,
        clip: clip_at_first,
        optimizer_state: None,
        created_at: now,
    };
    Ok((row, version))
}

async fn store(
    app: &App,
    (row, version): (TaskRow, ModelVersion),
    key: Option<&Key>,
    request_sha256: Digest,
    actor: &Actor,
) -> Result<IdempotentAnswer> {
    let (row, version) = (&row, &version);
    let expires_at: Timestamp = row.created_at.plus(REMEMBER);
    app.store
        .transact("create_task", |tx| {
            Box::pin(async move {
                // The same request may have been sent concurrently.
                if let Some(key) = key
                    && let Some(answer) = find_answer(tx, key, request_sha256).await?
                {
                    return Ok(answer);
                }
                if tx.task_by_name(&row.spec.name).await?.is_some_and(|other| !other.status.is_terminal()) {
                    return Err(Error::Conflict(format!(
                        "there is a task called {:?} that is not over; cancel it, or choose another name",
                        row.spec.name
                    )));
                }
                tx.act_for(actor.clone());
                tx.insert_task(row).await?;
                tx.insert_model_version(version).await?;
                let view = tasks::read(tx, row.id, row.created_at)
                    .await?
                    .ok_or_else(|| Error::fault("a new task is not there"))?;
                let body = serde_json::to_vec(&view).map_err(Error::fault)?;
                let answer = IdempotentAnswer { request_sha256, status: StatusCode::CREATED.as_u16(), body };
                if let Some(key) = key {
                    tx.insert_idempotent(&key.scope, &key.key, &answer, expires_at).await?;
                }
                Ok(answer)
            })
        })
        .await
}

fn respond(answer: IdempotentAnswer) -> Result<Response> {
    let status = StatusCode::from_u16(answer.status).map_err(Error::fault)?;
    Ok((status, [(header::CONTENT_TYPE, "application/json")], answer.body).into_response())
}
