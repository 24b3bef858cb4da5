//! `POST /v1/enrollment-tokens`: creates a one-time token to enrol a new or existing participant.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use federation::id::TokenId;
use http::{HeaderMap, StatusCode};
use store::Transaction;
use store::entity::token::EnrollmentToken;
use task_spec::is_name;
use wire::admin::{CreateEnrollmentToken, EnrollmentTokenReply};
use wire::route;

use super::idempotency::{Key, OnlyOnce};
use super::secret;
use crate::http::app::App;
use crate::http::auth::operators::Operator;
use crate::http::extract::{Json, read_json_bytes};
use crate::http::participant::enroll::check_labels;
use crate::http::reply::problem::{Error, Result};

const DAY_MS: u64 = 24 * 3600 * 1000;
const VALID_MAX_MS: u64 = 30 * DAY_MS;

/// Create a one-time token for one participant.
#[utoipa::path(
    post, path = route::ENROLLMENT_TOKENS, params(OnlyOnce), request_body = CreateEnrollmentToken, security(("token" = ["operator"])),
    responses((status = 201, body = EnrollmentTokenReply), (status = 404), (status = 409)),
)]
pub(in crate::http) async fn create(
    Operator(bearer): Operator,
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    body: Body,
) -> Result<(StatusCode, Json<EnrollmentTokenReply>)> {
    let (request, bytes) =
        read_json_bytes::<CreateEnrollmentToken>(&headers, body, app.config.http.body_max_bytes).await?;
    let key = Key::of(&headers, "create_enrollment_token", &bearer, &bytes)?;
    check_labels(&request.labels)?;
    if request.name.as_deref().is_some_and(|name| !is_name(name)) {
        return Err(Error::InvalidValue(
            "name must be 1 to 64 letters, digits, '-', '_' or '.', and not of dots alone".to_owned(),
        ));
    }
    if request.participant.is_some() && (request.name.is_some() || !request.labels.is_empty()) {
        let detail = "a token with which a participant comes back takes neither name nor labels: it keeps its own";
        return Err(Error::InvalidValue(detail.to_owned()));
    }
    let valid_for_ms = request.valid_for_ms.unwrap_or(DAY_MS);
    if !(1..=VALID_MAX_MS).contains(&valid_for_ms) {
        return Err(Error::InvalidValue(format!("valid_for_ms must be between 1 and {VALID_MAX_MS} (30 days)")));
    }
    let (token, now) = (secret(&app.random), app.now());
    let row = EnrollmentToken {
        id: TokenId(app.random.uuid()),
        secret_sha256: crate::digest(token.as_bytes()),
        participant: request.participant,
        // If empty, the participant chooses its name.
        name: request.name.unwrap_or_default(),
        labels: request.labels,
        created_at: now,
        expires_at: now.plus(Duration::from_millis(valid_for_ms)),
        used_at: None,
        used_by: None,
    };
    let (row_ref, actor, key) = (&row, &bearer.actor(), key.as_ref());
    app.store
        .transact("create_enrollment_token", |tx| {
            Box::pin(async move {
                Key::only_once(key, tx, row_ref.id, now).await?;
                name_is_free(tx, &row_ref.name).await?;
                if let Some(id) = row_ref.participant {
                    let there = tx.participant(id).await?;
                    let there = there.ok_or_else(|| Error::NotFound(format!("there is no participant {id}")))?;
                    if there.revoked_at.is_some() {
                        let detail = format!("participant {id} was revoked: it can only enrol as somebody new");
                        return Err(Error::Conflict(detail));
                    }
                }
                tx.act_for(actor.clone());
                tx.insert_enrollment_token(row_ref).await?;
                Ok(())
            })
        })
        .await?;
    tracing::info!(token = %row.id, "enrolment token {} created by operator {:?}", row.id, bearer.name);
    Ok((StatusCode::CREATED, Json(EnrollmentTokenReply { id: row.id, token, expires_at: row.expires_at })))
}

/// Checks that no participant has this name.
///
/// # Errors
/// [`Error::Conflict`]; errors of the store.
async fn name_is_free(tx: &mut Transaction<'_>, name: &str) -> Result<()> {
    match tx.participant_by_name(name).await? {
        Some(there) if there.revoked_at.is_none() => Err(Error::Conflict(format!(
            "there is a participant called {name:?} already; with its journal it needs no token, and without it one for \
             its id (`participant`)"
        ))),
        Some(_) | None => Ok(()),
    }
}
