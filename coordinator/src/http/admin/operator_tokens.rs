//! `GET` and `POST /v1/operator-tokens`, `GET …/current`, `POST …/{token}/revoke`.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use federation::event::Actor;
use federation::id::{TaskId, TokenId};
use federation::time::Timestamp;
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use store::entity::token::{OperatorToken, TaskScope};
use store::{Store, StoreError};
use task_spec::is_name;
use utoipa::IntoParams;
use wire::admin::{BearerView, CreateOperatorToken, OperatorTokenReply, OperatorTokenView, Role};
use wire::inspect::Page;
use wire::route;

use super::idempotency::{Key, OnlyOnce};
use super::secret;
use crate::config::DatabaseError;
use crate::http::app::{App, named_task};
use crate::http::auth::operators::{Admin, Anybody, Bearer};
use crate::http::extract::{Json, Path, Query, read_json_bytes};
use crate::http::inspect::{List, PageQuery, page};
use crate::http::reply::problem::{Error, Result};
use crate::process::lock::LockError;
use crate::random::Random;

/// Reasons why an operator token was not created.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The request is invalid.
    #[error("{0}")]
    Invalid(&'static str),
    /// The token names an unknown task.
    #[error("there is no task {0:?}")]
    NoTask(String),
    /// The database does not exist yet.
    #[error("there is no database at {0}: a coordinator's first start makes it, and the first admin token")]
    NoDatabase(PathBuf),
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// The token could not be shown, and was not stored.
    #[error("the token could not be shown, so it was not stored: {0}")]
    Show(#[source] io::Error),
    /// The token could not be stored; if it was already shown, it is invalid.
    #[error("the token could not be stored: {0}")]
    Store(#[from] StoreError),
    /// Another process uses the data.
    #[error(transparent)]
    Locked(#[from] LockError),
}

/// Maximum validity of an expiring token.
const VALID_MAX_MS: u64 = 366 * 24 * 3600 * 1000;
/// Maximum number of tasks of a scoped token.
const TASKS_MAX: usize = 64;

/// Validates a request for a token.
///
/// # Errors
/// [`TokenError::Invalid`].
fn check(request: &CreateOperatorToken) -> std::result::Result<(), TokenError> {
    let CreateOperatorToken { name, role, valid_for_ms, tasks } = request;
    if !is_name(name) {
        return Err(TokenError::Invalid(
            "name must be 1 to 64 letters, digits, '-', '_' or '.', and not of dots alone",
        ));
    }
    if valid_for_ms.is_some_and(|ms| !(1..=VALID_MAX_MS).contains(&ms)) {
        return Err(TokenError::Invalid(
            "valid_for_ms must be between 1 and 31622400000 (366 days); a token without it counts until it is revoked",
        ));
    }
    let Some(tasks) = tasks else { return Ok(()) };
    if !(1..=TASKS_MAX).contains(&tasks.len()) {
        return Err(TokenError::Invalid("tasks must name 1 to 64 tasks; a token without it is for all"));
    }
    match role {
        Role::Predictor | Role::Viewer | Role::Operator => Ok(()),
        Role::Admin => Err(TokenError::Invalid("an admin's token is for everything: leave tasks out")),
    }
}

/// Resolves the requested scope of a token.
async fn scope(store: &Store, request: &CreateOperatorToken) -> std::result::Result<TaskScope, TokenError> {
    let Some(named) = &request.tasks else { return Ok(TaskScope::All) };
    let read = store.read("tasks_of_token", |tx| {
        Box::pin(async move {
            let mut tasks = Vec::new();
            for named in named {
                let task = named_task(tx, named).await?.ok_or_else(|| TokenError::NoTask(named.clone()))?.id;
                if !tasks.contains(&task) {
                    tasks.push(task);
                }
            }
            Ok::<_, TokenError>(TaskScope::Only(tasks))
        })
    });
    read.await
}

/// List operator tokens.
#[utoipa::path(
    get, path = route::OPERATOR_TOKENS, params(PageQuery), security(("token" = ["admin"])),
    responses((status = 200, body = Page<OperatorTokenView>)),
)]
pub(in crate::http) async fn list(
    _: Admin,
    State(app): State<Arc<App>>,
    Query(query): Query<PageQuery>,
) -> Result<Json<Page<OperatorTokenView>>> {
    let (limit, cursor) = (query.limit()?, query.place::<TokenId>(List::OperatorTokens)?);
    let rows = app
        .store
        .read("list_operator_tokens", |tx| Box::pin(async move { tx.operator_tokens(cursor, limit + 1).await }))
        .await?;
    let views = rows.into_iter().map(view).collect::<Result<Vec<_>>>()?;
    Ok(Json(page(List::OperatorTokens, views, limit, |view| view.id, |view| view)))
}

fn view(row: OperatorToken) -> Result<OperatorTokenView> {
    let OperatorToken { id, name, role, created_at, expires_at, revoked_at, tasks, .. } = row;
    let role = Role::ALL.into_iter().find(|known| known.as_str() == role);
    let role = role.ok_or_else(|| Error::fault(format!("token {id} has an unknown role")))?;
    Ok(OperatorTokenView { id, name, role, created_at, expires_at, revoked_at, tasks: told(tasks) })
}

/// The tasks in a scope, as shown to operators; `None` means all tasks.
pub(super) fn told(scope: TaskScope) -> Option<Vec<TaskId>> {
    match scope {
        TaskScope::All => None,
        TaskScope::Only(tasks) => Some(tasks),
    }
}

/// Get what the bearer's token allows.
#[utoipa::path(
    get, path = route::OPERATOR_TOKEN, security(("token" = ["predictor"])), responses((status = 200, body = BearerView)),
)]
pub(in crate::http) async fn current(Anybody(bearer): Anybody) -> Json<BearerView> {
    let Bearer { name, role, scope, until, .. } = bearer;
    Json(BearerView { name, role, expires_at: until, tasks: told(scope) })
}

/// Create an operator token.
#[utoipa::path(
    post, path = route::OPERATOR_TOKENS, params(OnlyOnce), request_body = CreateOperatorToken, security(("token" = ["admin"])),
    responses((status = 201, body = OperatorTokenReply), (status = 409)),
)]
pub(in crate::http) async fn create(
    Admin(bearer): Admin,
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    body: Body,
) -> Result<(StatusCode, Json<OperatorTokenReply>)> {
    let (request, bytes) =
        read_json_bytes::<CreateOperatorToken>(&headers, body, app.config.http.body_max_bytes).await?;
    let key = Key::of(&headers, "create_operator_token", &bearer, &bytes)?;
    let now = app.now();
    let (row, reply) = draw(&app.store, &app.random, now, &request).await?;
    let (row, key, actor) = (&row, key.as_ref(), &bearer.actor());
    app.store
        .transact("create_operator_token", |tx| {
            Box::pin(async move {
                Key::only_once(key, tx, row.id, now).await?;
                tx.act_for(actor.clone());
                Ok::<_, Error>(tx.insert_operator_token(row).await?)
            })
        })
        .await?;
    let (id, name) = (reply.id, &request.name);
    tracing::info!(token = %id, "operator token {id} for {name} created by operator {:?}", bearer.name);
    Ok((StatusCode::CREATED, Json(reply)))
}

impl From<TokenError> for Error {
    fn from(error: TokenError) -> Self {
        match error {
            TokenError::Invalid(why) => Self::InvalidValue(why.to_owned()),
            TokenError::NoTask(_) => Self::InvalidValue(error.to_string()),
            TokenError::Store(error) => Self::Store(error),
            TokenError::NoDatabase(_) | TokenError::Database(_) | TokenError::Show(_) | TokenError::Locked(_) => {
                Self::fault(error)
            }
        }
    }
}

/// Creates and stores a token.
///
/// # Errors
/// [`TokenError`].
pub(crate) async fn issue(
    store: &Store,
    random: &Random,
    now: Timestamp,
    request: &CreateOperatorToken,
) -> std::result::Result<OperatorTokenReply, TokenError> {
    let (row, reply) = draw(store, random, now, request).await?;
    keep(store, &row).await?;
    Ok(reply)
}

/// Creates a token, shows it, and then stores it. Storing first could leave an unusable token, and the next start would not create another.
///
/// # Errors
/// [`TokenError::Show`]: the token was not stored. [`TokenError::Store`]: the shown token is invalid.
pub(crate) async fn issue_shown(
    store: &Store,
    random: &Random,
    now: Timestamp,
    request: &CreateOperatorToken,
    show: impl FnOnce(&OperatorTokenReply) -> io::Result<()>,
) -> std::result::Result<OperatorTokenReply, TokenError> {
    let (row, reply) = draw(store, random, now, request).await?;
    show(&reply).map_err(TokenError::Show)?;
    keep(store, &row).await?;
    Ok(reply)
}

async fn draw(
    store: &Store,
    random: &Random,
    now: Timestamp,
    request: &CreateOperatorToken,
) -> std::result::Result<(OperatorToken, OperatorTokenReply), TokenError> {
    check(request)?;
    let tasks = scope(store, request).await?;
    let token = secret(random);
    let row = OperatorToken {
        id: TokenId(random.uuid()),
        secret_sha256: crate::digest(token.as_bytes()),
        name: request.name.clone(),
        role: request.role.as_str().to_owned(),
        created_at: now,
        expires_at: request.valid_for_ms.map(|ms| now.plus(Duration::from_millis(ms))),
        revoked_at: None,
        tasks,
    };
    let reply = OperatorTokenReply { id: row.id, token, expires_at: row.expires_at };
    Ok((row, reply))
}

async fn keep(store: &Store, row: &OperatorToken) -> std::result::Result<(), StoreError> {
    store
        .transact("create_operator_token", |tx| {
            Box::pin(async move {
                tx.act_for(Actor::Coordinator);
                tx.insert_operator_token(row).await
            })
        })
        .await
}

/// Options of a revocation.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct Revocation {
    /// Revoke even the last admin token that does not expire, after which nobody can create another through the API in the end.
    force: bool,
}

/// Revoke an operator token.
#[utoipa::path(
    post, path = route::OPERATOR_TOKEN_REVOKE, params(Revocation), security(("token" = ["admin"])),
    responses((status = 204), (status = 404), (status = 409)),
)]
pub(in crate::http) async fn revoke(
    Admin(bearer): Admin,
    State(app): State<Arc<App>>,
    Path(token): Path<TokenId>,
    Query(Revocation { force }): Query<Revocation>,
) -> Result<StatusCode> {
    let (now, actor) = (app.now(), &bearer.actor());
    let is_news = app
        .store
        .transact("revoke_operator_token", |tx| {
            Box::pin(async move {
                tx.act_for(actor.clone());
                let admins = tx.lasting_operator_tokens(Role::Admin.as_str()).await?;
                if !tx.revoke_operator_token(token, now).await? {
                    // Idempotent: a repeated request succeeds.
                    let found = tx.operator_token(token).await?;
                    return match found {
                        Some(_) => Ok(false),
                        None => Err(Error::NotFound(format!("there is no operator token {token}"))),
                    };
                }
                let left = tx.lasting_operator_tokens(Role::Admin.as_str()).await?;
                if left == 0 && admins > 0 && !force {
                    return Err(Error::Conflict(
                        "this is the last admin token that does not expire: without one, nobody can make or revoke tokens in the \
                         end; make another first, or send force=true"
                            .to_owned(),
                    ));
                }
                Ok(true)
            })
        })
        .await?;
    if is_news {
        tracing::info!(%token, "operator token {token} revoked by operator {:?}", bearer.name);
    }
    Ok(StatusCode::NO_CONTENT)
}
