//! `GET /sign-in/callback`: a browser comes back from the identity provider, and is signed in. What goes wrong is a page, see
//! `problem_page`.
//!
//! Whoever comes has to bring the cookie of the browser that left and the state that was sent with it, which nobody else has; this
//! counts once. Only then is the provider asked.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::{AppendHeaders, IntoResponse as _, Response};
use http::{HeaderValue, StatusCode, header};
use serde::Deserialize;

use crate::http::admin::sign_ins::{enter, note_refusal};
use crate::http::app::App;
use crate::http::authenticate::AnyPeer;
use crate::http::limits::Key;
use crate::http::operators::{admit_identity, identity_actor};
use crate::http::problem::{Error, Result};
use crate::http::sign_in::Away;
use crate::oidc::{BroughtBack, Unidentified};

/// Providers may add more, and leave it empty.
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
    // Always the same place, without the code: where the operator was, the page knows by itself.
    let headers = [
        (header::LOCATION, HeaderValue::from_static("/")),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    ];
    Ok((StatusCode::SEE_OTHER, AppendHeaders(cookies), headers).into_response())
}
