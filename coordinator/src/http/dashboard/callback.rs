//! `GET /sign-in/callback`: completes a sign-in when the browser returns from the identity provider. Errors are pages, see `problem_page`.
//!
//! The browser must present its cookie and the matching state, both single-use. Only then does the coordinator contact the provider.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::{AppendHeaders, IntoResponse as _, Response};
use http::{HeaderValue, StatusCode, header};
use listener::Key;
use serde::Deserialize;

use crate::http::admin::sign_ins::{enter, note_refusal};
use crate::http::app::App;
use crate::http::auth::authenticate::AnyPeer;
use crate::http::auth::operators::{admit_identity, identity_actor};
use crate::http::auth::sign_in::Away;
use crate::http::reply::problem::{Error, Result};
use crate::oidc::{BroughtBack, Unidentified};

/// The parameters of the callback. Providers may add others, and may leave `state` empty.
#[derive(Deserialize)]
pub(super) struct CallbackQuery {
    #[serde(default)]
    state: String,
    code: Option<String>,
    error: Option<String>,
    iss: Option<String>,
}

pub(super) async fn callback(_: AnyPeer, State(app): State<Arc<App>>, request: Request) -> Result<Response> {
    const STRANGE: Error = Error::Unauthenticated(
        "this sign-in was not begun in this browser, was begun too long ago, or was replaced by another one: begin again",
    );
    let (parts, _) = request.into_parts();
    let query: CallbackQuery = serde_html_form::from_str(parts.uri.query().unwrap_or_default())
        .map_err(|error| Error::Malformed(format!("the query: {error}")))?;
    let now = app.now();
    let oidc = app.oidc.as_ref().ok_or(STRANGE)?;
    let away = Away::back(&parts.headers, &query.state, &app.sealer, now).ok_or(STRANGE)?;
    let (used, until) = away.used();
    let is_first =
        app.store.transact("use_sign_in_state", |tx| Box::pin(async move { tx.use_nonce(used, until).await })).await?;
    if !is_first {
        return Err(Error::Unauthenticated("this answer of the identity provider was used already: begin again"));
    }
    let brought =
        BroughtBack { code: query.code.as_deref(), error: query.error.as_deref(), issuer: query.iss.as_deref() };
    let identity = match oidc.identify_by_code(&brought, &away.proof(&app.sealer), now).await {
        Err(Unidentified::NoRole { claim, issuer, subject_sha256 }) => {
            let (of, actor) = (Key::Identity(subject_sha256), identity_actor(issuer.clone(), subject_sha256));
            note_refusal(&app, of, actor, "no_role", now).await?;
            return Err(Unidentified::NoRole { claim, issuer, subject_sha256 }.into());
        }
        identified => identified?,
    };
    let bearer = admit_identity(&parts, &app, identity).await?;
    let (_, cookie) = enter(&app, &bearer, now).await?;
    let cookies = [(header::SET_COOKIE, cookie), (header::SET_COOKIE, Away::unset()?)];
    // Always the same location, without the code; the page remembers the operator's previous view.
    let headers = [
        (header::LOCATION, HeaderValue::from_static("/")),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    ];
    Ok((StatusCode::SEE_OTHER, AppendHeaders(cookies), headers).into_response())
}
