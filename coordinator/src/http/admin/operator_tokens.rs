//! `GET` and `POST /v1/operator-tokens`, `POST …/{token}/revoke`.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use federation::event::Actor;
use federation::id::TokenId;
use federation::time::Timestamp;
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use store::entity::token::OperatorToken;
use store::{Store, StoreError};
use task_spec::is_name;
use utoipa::IntoParams;
use wire::admin::{CreateOperatorToken, OperatorTokenReply, OperatorTokenView, Role};
use wire::inspect::Page;
use wire::route;

use super::idempotency::{Key, OnlyOnce};
use super::secret;
use crate::config::DatabaseError;
use crate::http::app::App;
use crate::http::authenticate::Admin;
use crate::http::extract::{Json, Path, Query, read_json_bytes};
use crate::http::inspect::{PageQuery, page};
use crate::http::problem::{Error, Result};
use crate::lock::LockError;
use crate::random::Random;

/// Reasons an operator token was not created.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The name is invalid.
    #[error("a name is 1 to 64 letters, digits, '-', '_' or '.', not {0:?}")]
    Name(String),
    /// There is no database to store it in.
    #[error("there is no database at {0}: a coordinator's first start makes it, and the first admin token")]
    NoDatabase(PathBuf),
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// It could not be shown, and so was not stored.
    #[error("the token could not be shown, so it was not stored: {0}")]
    Show(#[source] io::Error),
    /// It could not be stored; a token already shown is invalid.
    #[error("the token could not be stored: {0}")]
    Store(#[from] StoreError),
    /// Another process uses the data.
    #[error(transparent)]
    Locked(#[from] LockError),
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
    let (limit, cursor) = (query.limit()?, query.cursor::<TokenId>()?);
    let rows = app
        .store
        .read("list_operator_tokens", |tx| Box::pin(async move { tx.operator_tokens(cursor, limit + 1).await }))
        .await?;
    let views = rows.into_iter().map(view).collect::<Result<Vec<_>>>()?;
    Ok(Json(page(views, limit, |view| view.id.to_string(), |view| view)))
}

fn view(row: OperatorToken) -> Result<OperatorTokenView> {
    let OperatorToken { id, name, role, created_at, revoked_at, .. } = row;
    let role = Role::ALL.into_iter().find(|known| known.as_str() == role);
    let role = role.ok_or_else(|| Error::fault(format!("token {id} has an unknown role")))?;
    Ok(OperatorTokenView { id, name, role, created_at, revoked_at })
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
    if !is_name(&request.name) {
        return Err(Error::InvalidValue("name must be 1 to 64 letters, digits, '-', '_' or '.'".to_owned()));
    }
    let now = app.now();
    let (row, reply) = draw(&app.random, now, &request.name, request.role);
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
    tracing::info!(token = %reply.id, "operator token {} for {} created by {}", reply.id, request.name, bearer.name);
    Ok((StatusCode::CREATED, Json(reply)))
}

/// Creates and stores a token.
///
/// # Errors
/// Those of the store.
pub(crate) async fn issue(
    store: &Store,
    random: &Random,
    now: Timestamp,
    name: &str,
    role: Role,
) -> std::result::Result<OperatorTokenReply, StoreError> {
    let (row, reply) = draw(random, now, name, role);
    keep(store, &row).await?;
    Ok(reply)
}

/// Creates a token, shows it, and only then stores it: a stored token that nobody has seen would be unusable, and would
/// keep the next start from creating another.
///
/// # Errors
/// [`TokenError::Show`], and nothing is stored; [`TokenError::Store`], and the token shown is invalid.
pub(crate) async fn issue_shown(
    store: &Store,
    random: &Random,
    now: Timestamp,
    name: &str,
    role: Role,
    show: impl FnOnce(&OperatorTokenReply) -> io::Result<()>,
) -> std::result::Result<OperatorTokenReply, TokenError> {
    let (row, reply) = draw(random, now, name, role);
    show(&reply).map_err(TokenError::Show)?;
    keep(store, &row).await?;
    Ok(reply)
}

fn draw(random: &Random, now: Timestamp, name: &str, role: Role) -> (OperatorToken, OperatorTokenReply) {
    let token = secret(random);
    let row = OperatorToken {
        id: TokenId(random.uuid()),
        secret_sha256: crate::digest(token.as_bytes()),
        name: name.to_owned(),
        role: role.as_str().to_owned(),
        created_at: now,
        revoked_at: None,
    };
    let id = row.id;
    (row, OperatorTokenReply { id, token })
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
    /// Revoke even the last admin token, after which nobody can create another through the API.
    force: bool,
}

/// Revoke an operator token.
#[utoipa::path(
    post, path = route::OPERATOR_TOKEN_REVOKE, params(Revocation), security(("token" = ["admin"])),
    responses((status = 204), (status = 409)),
)]
pub(in crate::http) async fn revoke(
    Admin(bearer): Admin,
    State(app): State<Arc<App>>,
    Path(token): Path<TokenId>,
    Query(Revocation { force }): Query<Revocation>,
) -> Result<StatusCode> {
    let (now, actor) = (app.now(), &bearer.actor());
    // Idempotent: a second request finds it done; an unknown token counts as revoked.
    app.store
        .transact("revoke_operator_token", |tx| {
            Box::pin(async move {
                tx.act_for(actor.clone());
                let admins = tx.live_operator_tokens(Role::Admin.as_str()).await?;
                tx.revoke_operator_token(token, now).await?;
                let left = tx.live_operator_tokens(Role::Admin.as_str()).await?;
                if left == 0 && admins > 0 && !force {
                    return Err(Error::Conflict(
                        "this is the last admin token: without it nobody can make or revoke tokens; make another first, or \
                         send force=true"
                            .to_owned(),
                    ));
                }
                Ok(())
            })
        })
        .await?;
    tracing::info!(%token, "operator token {token} revoked by {}", bearer.name);
    Ok(StatusCode::NO_CONTENT)
}
