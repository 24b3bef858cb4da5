//! Bounded extractors of bodies, paths and queries, with problem documents instead of plain-text errors.

use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::response::{IntoResponse, Response};
use federation::id::{Attempt, TaskId};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde::Serialize;
use serde::de::DeserializeOwned;
use wire::headers::ATTEMPT;

use super::app::App;
use super::auth::signed::is_other_body;
use super::reply::problem::{Error, Result};
use std::sync::Arc;

/// A JSON body of a request or response.
pub(super) struct Json<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequest<Arc<App>> for Json<T> {
    type Rejection = Error;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self> {
        let (parts, body) = request.into_parts();
        read_json(&parts.headers, body, app.config.http.body_max_bytes).await.map(Self)
    }
}

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        match serde_json::to_vec(&self.0) {
            Ok(body) => ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], body).into_response(),
            Err(error) => Error::fault(error).into_response(),
        }
    }
}

/// Reads a JSON body of at most `limit` bytes.
pub(super) async fn read_json<T: DeserializeOwned>(
    headers: &HeaderMap,
    body: axum::body::Body,
    limit: u64,
) -> Result<T> {
    read_json_bytes(headers, body, limit).await.map(|(value, _)| value)
}

/// Reads a JSON body like [`read_json`], and returns its bytes too.
pub(super) async fn read_json_bytes<T: DeserializeOwned>(
    headers: &HeaderMap,
    body: axum::body::Body,
    limit: u64,
) -> Result<(T, bytes::Bytes)> {
    require_media_type(headers, "application/json")?;
    let bytes = read(headers, body, limit).await?;
    let value = serde_json::from_slice(&bytes).map_err(|error| Error::Malformed(format!("the body: {error}")))?;
    Ok((value, bytes))
}

/// Reads a whole body of at most `limit` bytes.
pub(super) async fn read(headers: &HeaderMap, body: axum::body::Body, limit: u64) -> Result<bytes::Bytes> {
    // Rejects a larger body before reading it.
    if content_length(headers)?.is_some_and(|length| length > limit) {
        return Err(Error::TooLarge(limit));
    }
    let limit_usize = usize::try_from(limit).unwrap_or(usize::MAX);
    match Limited::new(body, limit_usize).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(Error::TooLarge(limit)),
        Err(error) if is_other_body(&*error) => Err(Error::OtherBody),
        Err(error) => Err(Error::Malformed(format!("the body was cut off: {error}"))),
    }
}

/// The request's content length.
pub(super) fn content_length(headers: &HeaderMap) -> Result<Option<u64>> {
    let Some(value) = headers.get(header::CONTENT_LENGTH) else { return Ok(None) };
    let length = value.to_str().ok().and_then(|text| text.parse().ok());
    length.map(Some).ok_or_else(|| Error::Malformed("content-length is not a number".to_owned()))
}

/// Checks that the body has this content type, ignoring parameters.
pub(super) fn require_media_type(headers: &HeaderMap, wanted: &'static str) -> Result<()> {
    let found = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let essence = found.and_then(|text| text.split(';').next());
    let is_wanted = essence.is_some_and(|essence| essence.trim().eq_ignore_ascii_case(wanted));
    if is_wanted { Ok(()) } else { Err(Error::MediaType(wanted)) }
}

/// The variables of the path. An invalid id or number is reported as not found.
pub(super) struct Path<T>(pub(super) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self> {
        axum::extract::Path::<T>::from_request_parts(parts, state)
            .await
            .map(|axum::extract::Path(value)| Self(value))
            .map_err(|rejection| Error::NotFound(format!("the path names nothing: {}", rejection.body_text())))
    }
}

/// The query. The type rejects unknown parameters, and repeated ones unless it takes several values.
pub(super) struct Query<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self> {
        let (query, malformed) =
            (parts.uri.query().unwrap_or_default(), |error| Error::Malformed(format!("the query: {error}")));
        // An empty value would be treated as absent.
        let pairs: Vec<(String, String)> = serde_html_form::from_str(query).map_err(malformed)?;
        if let Some((name, _)) = pairs.iter().find(|(_, value)| value.is_empty()) {
            return Err(Error::InvalidValue(format!("{name} has no value: give it one, or leave it out")));
        }
        serde_html_form::from_str(query).map(Self).map_err(malformed)
    }
}

/// The attempt at a round named by a request's header.
pub(super) fn attempt(headers: &HeaderMap, task: TaskId, round: u32) -> Result<Attempt> {
    Ok(Attempt { task, round, attempt: required(headers, ATTEMPT, "the number of the round's attempt")? })
}

/// Parses a required header.
pub(super) fn required<T: std::str::FromStr>(headers: &HeaderMap, name: &'static str, what: &str) -> Result<T> {
    headers
        .get(name)
        .and_then(|value| value.to_str().ok())
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| Error::Malformed(format!("the header {name} must be {what}")))
}
