//! Entity tags of views (RFC 9110 §8.8.3): digests of what a view shows. A write that names one in `If-Match` is done only while the
//! view still shows that.

use axum::extract::FromRequestParts;
use axum::response::{IntoResponse, Response};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use serde::Serialize;
use utoipa::IntoParams;
use utoipa::openapi::path::{Parameter, ParameterIn};

use super::openapi::header;
use super::problem::{Error, Result};

/// A view as JSON, with its entity tag.
pub(super) struct Tagged<T>(pub(super) T);

impl<T: Serialize> IntoResponse for Tagged<T> {
    fn into_response(self) -> Response {
        match serde_json::to_vec(&self.0) {
            Ok(body) => answer(body).into_response(),
            Err(error) => Error::fault(error).into_response(),
        }
    }
}

/// A view that is JSON already, with its entity tag.
pub(super) fn answer(body: Vec<u8>) -> impl IntoResponse {
    let media = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, media), (header::ETAG, tag(&body))], body)
}

/// 128 bits of the digest of a view's JSON.
fn tag(body: &[u8]) -> HeaderValue {
    let text = format!("\"{}\"", hex::encode(&crate::digest(body).0[..16]));
    // Digits and letters in quotes.
    HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("\"\""))
}

/// Whether a list of entity tags contains this one, RFC 9110 §8.8.3.2 (weak comparison).
pub(super) fn is_named(headers: &HeaderMap, name: HeaderName, etag: &str) -> bool {
    let text = headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    text.split(',').map(|tag| tag.trim().trim_start_matches("W/")).any(|tag| tag == etag || tag == "*")
}

/// The header of a request for a view that may be known already.
pub(super) struct IfNoneMatch;

impl IntoParams for IfNoneMatch {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        vec![header("if-none-match", false, "The `ETag` of a view: 304 if it shows the same still.")]
    }
}

/// The entity tags of which a view must have one for a write to be done.
pub(super) struct IfMatch(Option<Vec<String>>);

impl<S: Send + Sync> FromRequestParts<S> for IfMatch {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self> {
        let mut tags = None;
        for value in parts.headers.get_all(header::IF_MATCH) {
            let text = value.to_str().map_err(|_| Error::Malformed("if-match: entity tags in quotes".to_owned()))?;
            tags.get_or_insert_with(Vec::new).extend(text.split(',').map(|tag| tag.trim().to_owned()));
        }
        Ok(Self(tags))
    }
}

impl IfMatch {
    /// Whether the write depends on what a view shows.
    pub(super) fn asks(&self) -> bool {
        self.0.is_some()
    }

    /// Checks the view as it is in the transaction of the write. The comparison is the strong one: a weak tag never fits.
    ///
    /// # Errors
    /// [`Error::Stale`].
    pub(super) fn check(&self, view: &impl Serialize) -> Result<()> {
        let Some(tags) = &self.0 else { return Ok(()) };
        let now = tag(&serde_json::to_vec(view).map_err(Error::fault)?);
        if tags.iter().any(|wanted| wanted == "*" || wanted.as_bytes() == now.as_bytes()) {
            return Ok(());
        }
        Err(Error::Stale(now))
    }
}

impl IntoParams for IfMatch {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        vec![header(
            "if-match",
            false,
            "The `ETag` of a view: without effect, and 412, if the view shows something else by now.",
        )]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_done_while_a_strong_tag_fits() {
        let view = ["a"];
        let tag = tag(&serde_json::to_vec(&view).unwrap()).to_str().unwrap().to_owned();
        let check = |tags: &[&str]| IfMatch(Some(tags.iter().map(|tag| (*tag).to_owned()).collect())).check(&view);
        assert!(IfMatch(None).check(&view).is_ok());
        for tags in [&[&*tag][..], &["*"], &["\"other\"", &tag]] {
            assert!(check(tags).is_ok(), "{tags:?}");
        }
        for tags in [&[&*format!("W/{tag}")][..], &["\"other\""], &[tag.trim_matches('"')], &[""]] {
            assert!(matches!(check(tags), Err(Error::Stale(now)) if now == tag), "{tags:?}");
        }
    }
}
