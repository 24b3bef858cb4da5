//! `Idempotency-Key`: repeating a creating request has no further effect.
//!
//! The stored answer is kept with the created object. An answer with a one-time secret is not stored; a repeat is rejected with the id of
//! the created object.

use std::time::Duration;

use federation::id::{Digest, TokenId};
use federation::time::Timestamp;
use http::{HeaderMap, StatusCode};
use serde_json::json;
use store::Transaction;
use store::entity::idempotency::IdempotentAnswer;
use utoipa::IntoParams;
use utoipa::openapi::path::{Parameter, ParameterIn};
use wire::headers::IDEMPOTENCY_KEY;

use crate::http::auth::operators::{Bearer, Who};
use crate::http::openapi::header;
use crate::http::reply::problem::{Error, Result};

/// How long a key is remembered.
const REMEMBER: Duration = Duration::from_secs(24 * 3600);

/// The idempotency header of requests whose first answer is repeated.
pub(super) struct FirstAnswer;

impl IntoParams for FirstAnswer {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        vec![header(
            IDEMPOTENCY_KEY,
            false,
            "For 24 hours a repeated request gets the first one's answer; 409 with another body.",
        )]
    }
}

/// The idempotency header of requests that create a secret.
pub(super) struct OnlyOnce;

impl IntoParams for OnlyOnce {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        let says = "For 24 hours a repeated request is refused with 409, which names what the first one made: its secret is shown once.";
        vec![header(IDEMPOTENCY_KEY, false, says)]
    }
}

/// The idempotency key of a request, scoped by operator and operation.
pub(super) struct Key {
    scope: String,
    key: String,
    request_sha256: Digest,
}

impl Key {
    /// The key in the headers, if present, of a request with this body.
    ///
    /// # Errors
    /// [`Error::InvalidValue`].
    pub(super) fn of(headers: &HeaderMap, operation: &str, bearer: &Bearer, body: &[u8]) -> Result<Option<Self>> {
        let Some(value) = headers.get(IDEMPOTENCY_KEY) else { return Ok(None) };
        let text = value.to_str().ok().filter(|text| (1..=64).contains(&text.len()));
        let key =
            text.ok_or_else(|| Error::InvalidValue("idempotency-key: 1 to 64 printable ASCII characters".to_owned()))?;
        let whose = match &bearer.who {
            Who::Token(token) => token.to_string(),
            Who::Identity(known) => known.subject_sha256.to_string(),
        };
        let scope = format!("{operation}/{whose}");
        Ok(Some(Self { scope, key: key.to_owned(), request_sha256: crate::digest(body) }))
    }

    /// The answer to the first request with this key.
    ///
    /// # Errors
    /// [`Error::Conflict`] if the first request had another body.
    pub(super) async fn find(&self, tx: &mut Transaction<'_>) -> Result<Option<IdempotentAnswer>> {
        match tx.find_idempotent(&self.scope, &self.key).await? {
            Some(answer) if answer.request_sha256 != self.request_sha256 => {
                Err(Error::Conflict("this idempotency key came with another body before".to_owned()))
            }
            answer => Ok(answer),
        }
    }

    /// Stores the answer with this body, and returns it.
    pub(super) async fn keep(
        key: Option<&Self>,
        tx: &mut Transaction<'_>,
        body: Vec<u8>,
        now: Timestamp,
    ) -> Result<Vec<u8>> {
        let Some(key) = key else { return Ok(body) };
        let answer =
            IdempotentAnswer { request_sha256: key.request_sha256, status: StatusCode::CREATED.as_u16(), body };
        tx.insert_idempotent(&key.scope, &key.key, &answer, now.plus(REMEMBER)).await?;
        Ok(answer.body)
    }

    /// Lets only the first request create a token; stores only the token's id.
    ///
    /// # Errors
    /// [`Error::Conflict`] for a repeat.
    pub(super) async fn only_once(
        key: Option<&Self>,
        tx: &mut Transaction<'_>,
        token: TokenId,
        now: Timestamp,
    ) -> Result<()> {
        let Some(key) = key else { return Ok(()) };
        if let Some(first) = key.find(tx).await? {
            let first: serde_json::Value = serde_json::from_slice(&first.body).map_err(Error::fault)?;
            return Err(Error::Conflict(format!(
                "this idempotency key has made token {} already, whose secret was shown then and is not kept; if it was lost, make \
                 another token with another key",
                first["id"].as_str().unwrap_or_default()
            )));
        }
        let body = serde_json::to_vec(&json!({ "id": token })).map_err(Error::fault)?;
        Self::keep(Some(key), tx, body, now).await.map(drop)
    }
}
