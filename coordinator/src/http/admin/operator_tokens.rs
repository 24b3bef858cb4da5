//! `GET` and `POST /v1/operator-tokens`, `POST …/{token}/revoke`.

use std::sync::Arc;

use axum::extract::State;
use federation::id::TokenId;
use federation::task::is_name;
use federation::time::Timestamp;
use http::StatusCode;
use store::entity::token::OperatorToken;
use store::{Store, StoreError};
use wire::admin::{CreateOperatorToken, OperatorTokenReply, OperatorTokenView, Role};
use wire::inspect::Page;

use super::secret;
use crate::http::app::App;
use crate::http::authenticate::Admin;
use crate::http::extract::{Json, Path, Query};
use crate::http::inspect::{PageQuery, page};
use crate::http::problem::{Error, Result};
use crate::random::Random;

pub(in crate::http) async fn list(
    _: Admin,
    State(app): State<Arc<App>>,
    Query(query): Query<PageQuery>,
) -> Result<Json<Page<OperatorTokenView>>> {
    let (limit, cursor) = (query.limit()?, query.cursor::<TokenId>()?);
    let rows = app
        .store
        .read("list_operator_tokens", |tx| Box::pin(async move { tx.operator_tokens(cursor, limit + 1).await }))
        .await
        .map_err(Error::Store)?;
    let views = rows.into_iter().map(view).collect::<Result<Vec<_>>>()?;
    Ok(Json(page(views, limit, |view| view.id.to_string(), |view| view)))
}

fn view(row: OperatorToken) -> Result<OperatorTokenView> {
    let OperatorToken { id, name, role, created_at, revoked_at, .. } = row;
    let role = Role::ALL.into_iter().find(|known| known.as_str() == role);
    let role = role.ok_or_else(|| Error::fault(format!("token {id} has an unknown role")))?;
    Ok(OperatorTokenView { id, name, role, created_at, revoked_at })
}

pub(in crate::http) async fn create(
    Admin(bearer): Admin,
    State(app): State<Arc<App>>,
    Json(request): Json<CreateOperatorToken>,
) -> Result<(StatusCode, Json<OperatorTokenReply>)> {
    if !is_name(&request.name) {
        return Err(Error::InvalidValue("name must be 1 to 64 letters, digits, '-', '_' or '.'".to_owned()));
    }
    let reply = issue(&app.store, &app.random, app.now(), &request.name, request.role).await?;
    tracing::info!(token = %reply.id, "operator token {} for {} created by {}", reply.id, request.name, bearer.name);
    Ok((StatusCode::CREATED, Json(reply)))
}

/// Makes and stores a token.
///
/// # Errors
/// The store's.
pub(crate) async fn issue(
    store: &Store,
    random: &Random,
    now: Timestamp,
    name: &str,
    role: Role,
) -> std::result::Result<OperatorTokenReply, StoreError> {
    let token = secret(random);
    let row = OperatorToken {
        id: TokenId(random.uuid()),
        secret_sha256: crate::digest(token.as_bytes()),
        name: name.to_owned(),
        role: role.as_str().to_owned(),
        created_at: now,
        revoked_at: None,
    };
    let row_ref = &row;
    store
        .transact("create_operator_token", |tx| Box::pin(async move { tx.insert_operator_token(row_ref).await }))
        .await?;
    Ok(OperatorTokenReply { id: row.id, token })
}

pub(in crate::http) async fn revoke(
    Admin(bearer): Admin,
    State(app): State<Arc<App>>,
    Path(token): Path<TokenId>,
) -> Result<StatusCode> {
    let now = app.now();
    // Asked for twice, the second time finds it done; a token that never was is taken for one that is revoked.
    app.store
        .transact("revoke_operator_token", |tx| Box::pin(async move { tx.revoke_operator_token(token, now).await }))
        .await
        .map_err(Error::Store)?;
    tracing::info!(%token, "operator token {token} revoked by {}", bearer.name);
    Ok(StatusCode::NO_CONTENT)
}
