//! `POST /v1/sign-ins`, `GET` and `DELETE /v1/sign-ins/current`: a cookie in place of an operator's token.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use federation::event::{EventKind, Fact, Subject};
use federation::id::SignInId;
use federation::time::Timestamp;
use http::{StatusCode, header};
use store::StoreError;
use store::entity::sign_in::SignIn;
use store::entity::token::{OperatorToken, TokenEnd};
use wire::admin::{CreateSignIn, SignInView};
use wire::route;
use zeroize::Zeroizing;

use super::operator_tokens::told;
use super::secret;
use crate::http::app::App;
use crate::http::authenticate::AnyPeer;
use crate::http::extract::{Json, read_json};
use crate::http::operators::{Bearer, SignedIn, actor, admit, token_of_secret};
use crate::http::problem::Result;
use crate::http::sign_in::{must_be_of_dashboard, set_cookie};

/// How long a sign-in counts: a working day.
const LASTS: Duration = Duration::from_secs(12 * 3600);
/// Sign-ins of one token that count at once; one more ends its oldest.
const SIGN_INS_PER_TOKEN: u32 = 64;

/// Sign in: an operator's token becomes a cookie.
#[utoipa::path(
    post, path = route::SIGN_INS, request_body = CreateSignIn,
    responses((status = 201, body = SignInView), (status = 403)),
)]
pub(in crate::http) async fn create(_: AnyPeer, State(app): State<Arc<App>>, request: Request) -> Result<Response> {
    let (parts, body) = request.into_parts();
    // Otherwise another site could sign its visitors in as somebody else.
    must_be_of_dashboard(&parts.headers)?;
    let CreateSignIn { token } = read_json(&parts.headers, body, app.config.http.body_max_bytes).await?;
    let token = token_of_secret(&app, Zeroizing::new(token).trim()).await?;
    let now = app.now();
    if let Some(end) = token.ended(now) {
        note_refusal(&app, &token, end, now).await?;
    }
    let of_token = token.id;
    let bearer = admit(&parts, &app, token, None)?;
    let secret = Zeroizing::new(secret(&app.random));
    let expires_at = bearer.until.into_iter().chain([now.plus(LASTS)]).min().unwrap_or(now);
    let row = &SignIn {
        id: SignInId(app.random.uuid()),
        secret_sha256: crate::digest(secret.as_bytes()),
        token: of_token,
        created_at: now,
        expires_at,
        ended_at: None,
    };
    let actor = &bearer.actor();
    app.store
        .transact("create_sign_in", |tx| {
            Box::pin(async move {
                tx.act_for(actor.clone());
                tx.insert_sign_in(row, SIGN_INS_PER_TOKEN).await
            })
        })
        .await?;
    tracing::info!(sign_in = %row.id, operator = bearer.name, "{} signed in", bearer.name);
    let lasts_ms = expires_at.0.saturating_sub(now.0).unsigned_abs();
    let cookie = set_cookie(&secret, lasts_ms.div_ceil(1000))?;
    Ok((StatusCode::CREATED, [(header::SET_COOKIE, cookie)], Json(view(bearer, row))).into_response())
}

/// Notes that a token that counts no more was tried, once in a while.
async fn note_refusal(app: &App, token: &OperatorToken, end: TokenEnd, now: Timestamp) -> Result<()> {
    if !app.refusals.is_due(token.id, now) {
        return Ok(());
    }
    let reason = match end {
        TokenEnd::Revoked => "revoked",
        TokenEnd::Expired(_) => "expired",
    };
    let noted = app.store.transact("refuse_sign_in", |tx| {
        Box::pin(async move {
            tx.act_for(actor(token.id, &token.name));
            tx.note_event(now, EventKind::SignInRefused, Subject::Service, [("reason", Fact::from(reason))]);
            Ok::<_, StoreError>(())
        })
    });
    Ok(noted.await?)
}

fn view(bearer: Bearer, row: &SignIn) -> SignInView {
    let Bearer { name, role, scope, .. } = bearer;
    SignInView { token: row.token, name, role, expires_at: row.expires_at, tasks: told(scope) }
}

/// Get whom the cookie stands for.
#[utoipa::path(
    get, path = route::SIGN_IN, security(("token" = ["viewer"])),
    responses((status = 200, body = SignInView), (status = 404)),
)]
pub(in crate::http) async fn show(SignedIn { bearer, sign_in }: SignedIn) -> Json<SignInView> {
    Json(view(bearer, &sign_in))
}

/// Sign out.
#[utoipa::path(
    delete, path = route::SIGN_IN, security(("token" = ["viewer"])), responses((status = 204), (status = 404)),
)]
pub(in crate::http) async fn end(
    SignedIn { bearer, sign_in }: SignedIn,
    State(app): State<Arc<App>>,
) -> Result<Response> {
    let (id, now, actor) = (sign_in.id, app.now(), &bearer.actor());
    app.store
        .transact("end_sign_in", |tx| {
            Box::pin(async move {
                tx.act_for(actor.clone());
                tx.end_sign_in(id, now).await
            })
        })
        .await?;
    tracing::info!(sign_in = %id, operator = bearer.name, "{} signed out", bearer.name);
    Ok((StatusCode::NO_CONTENT, [(header::SET_COOKIE, set_cookie("", 0)?)]).into_response())
}
