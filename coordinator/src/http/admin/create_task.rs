//! `POST /v1/tasks`: stores a task, its initial model version, and the answer under its idempotency key, in one transaction. A dry run only
//! validates.

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
use serde::Deserialize;
use serde_json::Value;
use store::entity::task::TaskRow;
use store::{Transaction, WakeEvent};
use task_spec::{Deployment, SpecError, TaskSpec, said_of, wrong_key};
use utoipa::IntoParams;
use wire::admin::{CheckedTask, CreateTask};
use wire::inspect::TaskView;
use wire::route;

use super::idempotency::{FirstAnswer, Key};
use super::initial_model::{self, Given};
use crate::http::app::App;
use crate::http::auth::operators::Operator;
use crate::http::extract::{Json, Query, read, require_media_type};
use crate::http::inspect::tasks;
use crate::http::reply::etag::Tagged;
use crate::http::reply::problem::{Error, Result};
use crate::privacy::ledger;
use crate::records::provenance;

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct CreateTaskQuery {
    /// Whether to judge the task only, and to create nothing.
    dry_run: bool,
}

/// Create a task, or judge whether it could be created.
#[utoipa::path(
    post, path = route::TASKS, params(FirstAnswer, CreateTaskQuery), request_body = CreateTask,
    security(("token" = ["operator"])),
    responses(
        (status = 201, body = TaskView), (status = 409),
        (status = 200, body = CheckedTask, description = "of a dry run: it could be created"),
    ),
)]
pub(in crate::http) async fn create_task(
    Operator(bearer): Operator,
    State(app): State<Arc<App>>,
    Query(CreateTaskQuery { dry_run }): Query<CreateTaskQuery>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response> {
    require_media_type(&headers, "application/json")?;
    let bytes = read(&headers, body, app.config.http.body_max_bytes).await?;
    if dry_run {
        return check(&app, read_spec(&bytes)?).await;
    }
    let key = Key::of(&headers, "create_task", &bearer, &bytes)?;
    if let Some(key) = &key {
        let answered = app.store.read("find_answer", |tx| Box::pin(async move { key.find(tx).await })).await?;
        if let Some(answer) = answered {
            return respond(&answer.body);
        }
    }
    let (row, version) = rows(&app, prepare(&app, read_spec(&bytes)?).await?).await?;
    let id = row.id;
    if row.spec.privacy.is_private() {
        let name = row.spec.name.as_str();
        app.store.read("check_name", |tx| Box::pin(async move { name_is_free(tx, name).await })).await?;
        let (sealer, spec) = (Arc::clone(&app.sealer), row.spec.clone());
        let keep = move || ledger::keep_promise(&sealer, id, &spec);
        tokio::task::spawn_blocking(keep).await.map_err(Error::fault)??;
    }
    let answer = store(&app, (row, version), key.as_ref(), &bearer.actor()).await?;
    app.store.wake().publish(WakeEvent::Task(id));
    app.store.wake().publish(WakeEvent::Work);
    tracing::info!(task = %id, operator = bearer.name, "task {id} created by operator {:?}", bearer.name);
    respond(&answer)
}

/// Parses a task from the request body. Errors name the key of the invalid value.
fn read_spec(bytes: &[u8]) -> Result<TaskSpec> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let malformed = |error: &serde_json::Error| Error::Malformed(format!("the body: {error}"));
    let body: CreateTask = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let path = error.path().to_string();
        match path.strip_prefix("spec.").filter(|_| error.inner().is_data()) {
            Some(field) => {
                let told = error.inner().to_string();
                let problem = told.rsplit_once(" at line ").map_or(told.as_str(), |(problem, _)| problem);
                let whole: Value = serde_json::from_slice(bytes).unwrap_or_default();
                let field = wrong_key(&whole["spec"], field, problem);
                let problem = said_of(&whole["spec"], &field, problem);
                Error::UnreadableTask(SpecError { field, problem })
            }
            None => malformed(error.inner()),
        }
    })?;
    reader.end().map_err(|error| malformed(&error))?;
    Ok(body.spec)
}

/// Answers a dry run with the task it would create.
async fn check(app: &App, spec: TaskSpec) -> Result<Response> {
    let Prepared { spec, parameters, update_bytes, first_version, .. } = prepare(app, spec).await?;
    if let FirstVersion::Given(given, model) = first_version {
        given.check(model).await?;
    }
    let name = spec.name.as_str();
    app.store.read("check_task", |tx| Box::pin(async move { name_is_free(tx, name).await })).await?;
    Ok(Json(CheckedTask { spec, parameters, update_bytes }).into_response())
}

/// Checks that every other task with this name has ended.
///
/// # Errors
/// [`Error::Conflict`]; errors of the store.
async fn name_is_free(tx: &mut Transaction<'_>, name: &str) -> Result<()> {
    match tx.task_by_name(name).await? {
        Some(other) if !other.status.is_terminal() => Err(Error::Conflict(format!(
            "there is a task called {name:?} that is not over; cancel it, or choose another name"
        ))),
        Some(_) | None => Ok(()),
    }
}

struct Prepared {
    /// The specification with derived values filled in.
    spec: TaskSpec,
    parameters: u64,
    /// Size of one masked input.
    update_bytes: u64,
    clip_at_first: Option<f64>,
    first_version: FirstVersion,
}

/// The source of a task's model version 0.
enum FirstVersion {
    /// Bytes of a randomly initialized model file.
    Drawn(Vec<u8>),
    /// An existing file to copy.
    Given(Given, Arc<TaskModel>),
}

/// Validates the task, and draws or finds its initial model.
async fn prepare(app: &App, mut spec: TaskSpec) -> Result<Prepared> {
    initial_model::inherit(&app.store, &mut spec).await?;
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
        return Err(Error::InvalidTask(vec![SpecError { field, problem }]));
    }
    if model.packed_len() > app.config.http.masked_input_max_bytes {
        return Err(Error::InvalidTask(vec![SpecError {
            field: "model.tensors".to_owned(),
            problem: format!(
                "an update has {} bytes, but this coordinator takes masked inputs of at most {}",
                model.packed_len(),
                app.config.http.masked_input_max_bytes
            ),
        }]));
    }
    let (parameters, update_bytes) = (model.tensors.shared.len() as u64, model.packed_len());
    let clip_at_first = model.private.as_ref().map(|private| private.initial_clip());
    let mut spec = spec;
    if let Some(given) = initial_model::find(&app.store, &mut spec).await? {
        let first_version = FirstVersion::Given(given, Arc::new(model));
        return Ok(Prepared { spec, parameters, update_bytes, clip_at_first, first_version });
    }
    // Drawing a large model takes seconds; a blocking thread keeps other requests running.
    tokio::task::spawn_blocking(move || {
        let first_version = FirstVersion::Drawn(model.first_version(&spec).map_err(Error::InvalidTask)?);
        Ok(Prepared { spec, parameters, update_bytes, clip_at_first, first_version })
    })
    .await
    .map_err(Error::fault)?
}

/// Returns the rows of a new task; stores the blob of its initial model first.
async fn rows(app: &App, prepared: Prepared) -> Result<(TaskRow, ModelVersion)> {
    let Prepared { spec, parameters, clip_at_first, first_version, .. } = prepared;
    let blobs = app.store.blobs();
    let (sha256, size) = match first_version {
        FirstVersion::Drawn(bytes) => {
            let size = bytes.len() as u64;
            (blobs.put_bytes(bytes.into()).await?, size)
        }
        FirstVersion::Given(given, model) => given.store(model, blobs).await?,
    };
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
    let (row, version, signer, terms) = (&row, &version, app.signer(), tasks::ViewTerms::of(app));
    app.store
        .transact("create_task", |tx| {
            Box::pin(async move {
                // A concurrent request may have used the same key.
                if let Some(key) = key
                    && let Some(answer) = key.find(tx).await?
                {
                    return Ok(answer.body);
                }
                name_is_free(tx, &row.spec.name).await?;
                tx.act_for(actor.clone());
                tx.insert_task(row).await?;
                provenance::publish(tx, signer, row, version, None).await?;
                let view = tasks::read(tx, row.id, terms, row.created_at)
                    .await?
                    .ok_or_else(|| Error::fault("a new task is not there"))?;
                let body = serde_json::to_vec(&view).map_err(Error::fault)?;
                Key::keep(key, tx, body, row.created_at).await
            })
        })
        .await
}

/// Returns the response for a stored view.
fn respond(view: &[u8]) -> Result<Response> {
    let view: TaskView = serde_json::from_slice(view).map_err(Error::fault)?;
    Ok((StatusCode::CREATED, Tagged(view)).into_response())
}
