//! `GET` and `POST /v1/sign-ins`, `POST /v1/sign-ins/authorization`, `GET` and `DELETE /v1/sign-ins/current`: a cookie replaces an
//! operator's token or the identity provider's token. The redirect back from the provider is handled by `dashboard::callback`.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use federation::event::{Actor, EventKind, Fact, Subject};
use federation::id::SignInId;
use federation::time::Timestamp;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use listener::Key;
use store::StoreError;
use store::entity::sign_in::{Holder, SignIn};
use store::entity::token::{OperatorToken, TokenEnd};
use wire::admin::{AuthorizationView, CreateSignIn, Role, SignInView, SignInWays};
use wire::route;
use zeroize::Zeroizing;

use super::operator_tokens::told;
use super::secret;
use crate::http::app::App;
use crate::http::auth::authenticate::AnyPeer;
use crate::http::auth::operators::{Bearer, SignedIn, Who, actor, admit, token_of_secret};
use crate::http::auth::sign_in::{Away, must_be_of_dashboard, set_cookie};
use crate::http::extract::{Json, read_json};
use crate::http::reply::problem::{Error, Result};

/// Validity of a sign-in: a working day.
const LASTS: Duration = Duration::from_secs(12 * 3600);
/// Maximum concurrent sign-ins of one operator; one more ends the oldest.
const SIGN_INS_PER_OPERATOR: u32 = 64;

/// Get the ways to sign in with a browser.
#[utoipa::path(get, path = route::SIGN_INS, responses((status = 200, body = SignInWays)))]
pub(in crate::http) async fn ways(_: AnyPeer, State(app): State<Arc<App>>) -> Json<SignInWays> {
    Json(SignInWays { provider: app.oidc.as_ref().and_then(|oidc| oidc.name()).map(str::to_owned) })
}

/// Begin to sign in at the identity provider.
#[utoipa::path(
    post, path = route::SIGN_IN_AUTHORIZATION,
    responses((status = 200, body = AuthorizationView), (status = 403), (status = 404)),
)]
pub(in crate::http) async fn authorize(
    _: AnyPeer,
    State(app): State<Arc<App>>,
    headers: HeaderMap,
) -> Result<Response> {
    // Otherwise another site could send its visitors to the provider.
    must_be_of_dashboard(&headers)?;
    let none = || Error::NotFound("browsers sign in with operators' tokens alone here".to_owned());
    let oidc = app.oidc.as_ref().ok_or_else(none)?;
    let now = app.now();
    let away = Away::begin(&Zeroizing::new(secret(&app.random)), now);
    let url = oidc.authorization_url(&away.proof(&app.sealer), now).await?.ok_or_else(none)?;
    Ok(([(header::SET_COOKIE, away.set()?)], Json(AuthorizationView { url })).into_response())
}

/// Sign in: an operator's token becomes a cookie.
#[utoipa::path(
    post, path = route::SIGN_INS, request_body = CreateSignIn,
    responses((status = 201, body = SignInView), (status = 403)),
)]
pub(in crate::http) async fn create(_: AnyPeer, State(app): State<Arc<App>>, request: Request) -> Result<Response> {
    let (parts, body) = request.into_parts();
    // Otherwise another site could sign its visitors in as another user (login CSRF).
    must_be_of_dashboard(&parts.headers)?;
    let CreateSignIn { token } = read_json(&parts.headers, body, app.config.http.body_max_bytes).await?;
    let token = token_of_secret(&app, Zeroizing::new(token).trim()).await?;
    let now = app.now();
    if let Some(end) = token.ended(now) {
        note_token_refusal(&app, &token, end, now).await?;
    }
    let bearer = admit(&parts, &app, token, None)?;
    let (row, cookie) = enter(&app, &bearer, now).await?;
    Ok((StatusCode::CREATED, [(header::SET_COOKIE, cookie)], Json(view(bearer, &row))).into_response())
}

/// Creates a sign-in: returns the row and the cookie to set. It is valid as long as the presented credential, at most 12 hours. The log
/// keeps each sign-in and its end for ever, so their rate is limited.
///
/// # Errors
/// [`Error::Forbidden`] below the role viewer; [`Error::RateLimited`]; errors of the store.
pub(in crate::http) async fn enter(app: &App, bearer: &Bearer, now: Timestamp) -> Result<(SignIn, HeaderValue)> {
    // A predictor's token is for model servers only.
    bearer.must_be(Role::Viewer)?;
    app.log_limiter.admit(bearer.key(), now).map_err(Error::RateLimited)?;
    let secret = Zeroizing::new(secret(&app.random));
    let expires_at = bearer.until.into_iter().chain([now.plus(LASTS)]).min().unwrap_or(now);
    let row = SignIn {
        id: SignInId(app.random.uuid()),
        secret_sha256: crate::digest(secret.as_bytes()),
        holder: match &bearer.who {
            Who::Token(token) => Holder::Token(*token),
            Who::Identity(known) => Holder::Identity(known.clone()),
        },
        created_at: now,
        expires_at,
        ended_at: None,
    };
    let (actor, new) = (&bearer.actor(), &row);
    app.store
        .transact("create_sign_in", |tx| {
            Box::pin(async move {
                tx.act_for(actor.clone());
                tx.insert_sign_in(new, SIGN_INS_PER_OPERATOR).await
            })
        })
        .await?;
    tracing::info!(sign_in = %row.id, operator = bearer.name, "{} signed in", bearer.name);
    let lasts_ms = expires_at.0.saturating_sub(now.0).unsigned_abs();
    Ok((row, set_cookie(&secret, lasts_ms.div_ceil(1000))?))
}

/// Logs an attempt to use an invalid token.
async fn note_token_refusal(app: &App, token: &OperatorToken, end: TokenEnd, now: Timestamp) -> Result<()> {
    let reason = match end {
        TokenEnd::Revoked => "revoked",
        TokenEnd::Expired(_) => "expired",
    };
    note_refusal(app, Key::Operator(token.id), actor(token.id, &token.name), reason, now).await
}

/// Logs a rejected sign-in of a known account, at a limited rate.
///
/// # Errors
/// Errors of the store.
pub(in crate::http) async fn note_refusal(
    app: &App,
    of: Key,
    actor: Actor,
    reason: &'static str,
    now: Timestamp,
) -> Result<()> {
    if !app.refusals.is_due(of, now) {
        return Ok(());
    }
    let actor = &actor;
    let noted = app.store.transact("refuse_sign_in", |tx| {
        Box::pin(async move {
            tx.act_for(actor.clone());
            tx.note_event(now, EventKind::SignInRefused, Subject::Service, [("reason", Fact::from(reason))]);
            Ok::<_, StoreError>(())
        })
    });
    Ok(noted.await?)
}

fn view(bearer: Bearer, row: &SignIn) -> SignInView {
    let token = bearer.token();
    let Bearer { name, role, scope, .. } = bearer;
    SignInView { token, name, role, expires_at: row.expires_at, tasks: told(scope) }
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
