//! `POST /v1/tasks`: stores a task, its initial model version, and the answer under its idempotency key, in one
//! transaction.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use federation::event::Actor;
use federation::id::TaskId;
use federation::model_version::ModelVersion;
use federation::task_status::TaskStatus;
use http::{HeaderMap, StatusCode};
use recipe::TaskModel;
use store::WakeEvent;
use store::entity::task::TaskRow;
use task_spec::{Deployment, TaskSpec};
use wire::admin::CreateTask;
use wire::inspect::TaskView;
use wire::route;

use super::idempotency::{FirstAnswer, Key};
use crate::http::app::App;
use crate::http::etag;
use crate::http::extract::{read, require_media_type};
use crate::http::inspect::tasks;
use crate::http::operators::Operator;
use crate::http::problem::{Error, Result};
use crate::ledger;

/// Create a task.
#[utoipa::path(
    post, path = route::TASKS, params(FirstAnswer), request_body = CreateTask, security(("token" = ["operator"])),
    responses((status = 201, body = TaskView), (status = 409)),
)]
pub(in crate::http) async fn create_task(
    Operator(bearer): Operator,
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response> {
    require_media_type(&headers, "application/json")?;
    let bytes = read(&headers, body, app.config.http.body_max_bytes).await?;
    let key = Key::of(&headers, "create_task", &bearer, &bytes)?;
    if let Some(key) = &key {
        let answered = app.store.read("find_answer", |tx| Box::pin(async move { key.find(tx).await })).await?;
        if let Some(answer) = answered {
            return Ok(respond(answer.body));
        }
    }
    let CreateTask { spec } =
        serde_json::from_slice(&bytes).map_err(|error| Error::Malformed(format!("the body: {error}")))?;
    let (row, version) = prepare(&app, spec).await?;
    let (id, privacy) = (row.id, row.spec.privacy.clone());
    let answer = store(&app, (row, version), key.as_ref(), &bearer.actor()).await?;
    if privacy.is_private() {
        // A crash here leaves a new task; opening its first round completes the rest.
        let sealer = Arc::clone(&app.sealer);
        let keep = move || ledger::keep_promise(&sealer, id, &privacy);
        tokio::task::spawn_blocking(keep).await.map_err(Error::fault)??;
    }
    app.store.wake().publish(WakeEvent::Task(id));
    app.store.wake().publish(WakeEvent::Work);
    tracing::info!(task = %id, operator = bearer.name, "task {id} created by {}", bearer.name);
    Ok(respond(answer))
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
        promoted_version: None,
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

/// Stores the task, and returns the answer.
async fn store(
    app: &App,
    (row, version): (TaskRow, ModelVersion),
    key: Option<&Key>,
    actor: &Actor,
) -> Result<Vec<u8>> {
    let (row, version) = (&row, &version);
    app.store
        .transact("create_task", |tx| {
            Box::pin(async move {
                // The same request may have been sent concurrently.
                if let Some(key) = key
                    && let Some(answer) = key.find(tx).await?
                {
                    return Ok(answer.body);
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
                Key::keep(key, tx, body, row.created_at).await
            })
        })
        .await
}

fn respond(view: Vec<u8>) -> Response {
    (StatusCode::CREATED, etag::answer(view)).into_response()
}
