//! Entity tags of views (RFC 9110 §8.8.3), of two digests: one of what a write could contradict, and one of all that a view shows.
//! `If-None-Match` goes by the whole tag, so that what is not sent again has not changed at all. A write that names a tag in `If-Match`
//! is done while the first part is the same: how many participants wait meanwhile, or which round it is, contradicts nothing.
//!
//! A compressed view is another representation, and a strong tag names one (§8.8.3.3), so that its tag has `-gzip` at the end. A weak
//! tag, which both could share, would fit no `If-Match`; of this one the first part is still that of the view, whichever was read.

use axum::extract::FromRequestParts;
use axum::response::{IntoResponse, Response};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use serde::Serialize;
use utoipa::IntoParams;
use utoipa::openapi::path::{Parameter, ParameterIn};

use super::openapi::header;
use super::problem::{Error, Result};

/// A view of which a part may change by itself.
pub(super) trait Revised: Serialize {
    /// What a write could contradict. By default all that is shown.
    ///
    /// # Errors
    /// It is no JSON.
    fn revision(&self) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec(self)
    }
}

/// A view as JSON, with its entity tag.
pub(super) struct Tagged<T>(pub(super) T);

impl<T: Revised> IntoResponse for Tagged<T> {
    fn into_response(self) -> Response {
        match serde_json::to_vec(&self.0).and_then(|body| Ok((tag(&self.0, &body)?, body))) {
            Ok((tag, body)) => {
                let media = HeaderValue::from_static("application/json");
                ([(header::CONTENT_TYPE, media), (header::ETAG, tag)], body).into_response()
            }
            Err(error) => Error::fault(error).into_response(),
        }
    }
}

/// 64 bits of the digest of what a write could contradict, and 128 of that of a view's JSON.
fn tag(view: &impl Revised, body: &[u8]) -> serde_json::Result<HeaderValue> {
    let part = |bytes: &[u8], length: usize| hex::encode(&crate::digest(bytes).0[..length]);
    let text = format!("\"{}-{}\"", part(&view.revision()?, 8), part(body, 16));
    // Digits, letters and a hyphen in quotes.
    Ok(HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("\"\"")))
}

/// The tag of a view when it is compressed.
pub(super) fn of_gzip(tag: &HeaderValue) -> Option<HeaderValue> {
    let plain = tag.to_str().ok()?.strip_suffix('"')?;
    HeaderValue::from_str(&format!("{plain}-gzip\"")).ok()
}

/// The part of a strong entity tag that a write goes by.
fn of_revision(tag: &str) -> Option<&str> {
    tag.strip_prefix('"')?.strip_suffix('"')?.split_once('-').map(|(revision, _)| revision)
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

    /// Checks the view as it is in the transaction of the write, by what a write could contradict. A weak tag never fits.
    ///
    /// # Errors
    /// [`Error::Stale`].
    pub(super) fn check(&self, view: &impl Revised) -> Result<()> {
        let Some(tags) = &self.0 else { return Ok(()) };
        let now = serde_json::to_vec(view).and_then(|body| tag(view, &body)).map_err(Error::fault)?;
        let revision = now.to_str().ok().and_then(of_revision);
        if tags.iter().any(|wanted| wanted == "*" || (revision.is_some() && of_revision(wanted) == revision)) {
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
            "The `ETag` of a view: without effect, and 412, if what a write could contradict is another by now.",
        )]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    struct View {
        kept: u32,
        live: u32,
    }

    impl Revised for View {
        fn revision(&self) -> serde_json::Result<Vec<u8>> {
            serde_json::to_vec(&self.kept)
        }
    }

    fn tag_of(view: &View) -> String {
        tag(view, &serde_json::to_vec(view).unwrap()).unwrap().to_str().unwrap().to_owned()
    }

    #[test]
    fn a_write_is_done_while_a_strong_tag_fits() {
        let view = View { kept: 1, live: 2 };
        let tag = tag_of(&view);
        let check = |tags: &[&str]| IfMatch(Some(tags.iter().map(|tag| (*tag).to_owned()).collect())).check(&view);
        assert!(IfMatch(None).check(&view).is_ok());
        let packed = of_gzip(&tag.parse().unwrap()).unwrap().to_str().unwrap().to_owned();
        assert!(packed.ends_with("-gzip\"") && packed != tag, "{packed}");
        for tags in [&[&*tag][..], &[&*packed], &["*"], &["\"other\"", &tag]] {
            assert!(check(tags).is_ok(), "{tags:?}");
        }
        for tags in [&[&*format!("W/{tag}")][..], &["\"other\""], &["\"-\""], &[tag.trim_matches('"')], &[""]] {
            assert!(matches!(check(tags), Err(Error::Stale(now)) if now == tag), "{tags:?}");
        }
    }

    #[test]
    fn what_changes_by_itself_is_in_the_tag_and_stops_no_write() {
        let [before, later, another] = [(1, 2), (1, 3), (2, 3)].map(|(kept, live)| View { kept, live });
        assert!(tag_of(&before) != tag_of(&later) && tag_of(&later) != tag_of(&another));
        let seen = IfMatch(Some(vec![tag_of(&before)]));
        assert!(seen.check(&later).is_ok());
        assert!(matches!(seen.check(&another), Err(Error::Stale(now)) if now == tag_of(&another)));
    }
}
