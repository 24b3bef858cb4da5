//! Entity tags of views (RFC 9110 §8.8.3), made of two digests: of the revision, for writes, and of the whole view. `If-None-Match`
//! compares the whole tag, so an omitted body is exactly unchanged. `If-Match` compares only the revision, so volatile parts, such as the
//! number of waiting participants or the current round, do not block a write.
//!
//! A strong tag names one representation (§8.8.3.3), so the tag of a compressed view ends with `-gzip`. A weak tag, common to both, would
//! never match `If-Match`. Both tags share the revision, so a write may name either.

use axum::extract::FromRequestParts;
use axum::response::{IntoResponse, Response};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use serde::Serialize;
use utoipa::IntoParams;
use utoipa::openapi::path::{Parameter, ParameterIn};

use super::problem::{Error, Result};
use crate::http::openapi::header;

/// A view with volatile parts.
pub(in crate::http) trait Revised: Serialize {
    /// The parts that matter to writes. By default the whole view.
    ///
    /// # Errors
    /// JSON serialization failed.
    fn revision(&self) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec(self)
    }
}

/// A view as JSON, with its entity tag.
pub(in crate::http) struct Tagged<T>(pub(in crate::http) T);

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

/// 64 bits of the revision's digest, and 128 bits of the digest of the view's JSON.
fn tag(view: &impl Revised, body: &[u8]) -> serde_json::Result<HeaderValue> {
    let text = format!("\"{}-{}\"", first_part(&view.revision()?), hex::encode(&crate::digest(body).0[..16]));
    // Contains only digits, letters and a hyphen in quotes.
    Ok(HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("\"\"")))
}

/// The first part of a tag, 64 bits of the revision's digest.
fn first_part(revision: &[u8]) -> String {
    hex::encode(&crate::digest(revision).0[..8])
}

/// The tag of a compressed view.
pub(super) fn of_gzip(tag: &HeaderValue) -> Option<HeaderValue> {
    let plain = tag.to_str().ok()?.strip_suffix('"')?;
    HeaderValue::from_str(&format!("{plain}-gzip\"")).ok()
}

/// The revision in a strong entity tag, for `If-Match`.
fn of_revision(tag: &str) -> Option<&str> {
    tag.strip_prefix('"')?.strip_suffix('"')?.split_once('-').map(|(revision, _)| revision)
}

/// Whether a list of entity tags, possibly in several lines (§5.3), contains this one, RFC 9110 §8.8.3.2 (weak comparison).
pub(in crate::http) fn is_named(headers: &HeaderMap, name: HeaderName, etag: &str) -> bool {
    let lists = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    let mut tags = lists.flat_map(|list| list.split(',')).map(str::trim);
    tags.any(|tag| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == etag)
}

/// The header of a conditional request.
pub(in crate::http) struct IfNoneMatch;

impl IntoParams for IfNoneMatch {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        vec![header("if-none-match", false, "The `ETag` of a view: 304 if it shows the same still.")]
    }
}

/// The entity tags accepted as precondition of a write.
pub(in crate::http) struct IfMatch(Option<Vec<String>>);

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
    /// Whether the write is conditional.
    pub(in crate::http) fn asks(&self) -> bool {
        self.0.is_some()
    }

    /// Checks the view's revision within the write's transaction. A weak tag never matches.
    ///
    /// # Errors
    /// [`Error::Stale`].
    pub(in crate::http) fn check(&self, view: &impl Revised) -> Result<()> {
        if self.fits(&view.revision().map_err(Error::fault)?) {
            return Ok(());
        }
        let now = serde_json::to_vec(view).and_then(|body| tag(view, &body)).map_err(Error::fault)?;
        Err(Error::Stale(now))
    }

    /// Whether this revision passes [`check`](Self::check), for views costlier to read than their revision.
    pub(in crate::http) fn fits(&self, revision: &[u8]) -> bool {
        let Some(tags) = &self.0 else { return true };
        let first = first_part(revision);
        tags.iter().any(|wanted| wanted == "*" || of_revision(wanted) == Some(&*first))
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
        assert!(IfMatch(None).check(&view).is_ok() && IfMatch(None).fits(b"whatever"));
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
    fn a_known_tag_is_found_in_any_line_of_a_list() {
        let known = |lines: &[&'static str]| {
            let headers = lines.iter().map(|line| (header::IF_NONE_MATCH, HeaderValue::from_static(line))).collect();
            is_named(&headers, header::IF_NONE_MATCH, "\"0a-1b\"")
        };
        for lines in [&["\"0a-1b\""][..], &["\"2c\", W/\"0a-1b\""], &["\"2c\"", "\"0a-1b\""], &["\"2c\"", "*"]] {
            assert!(known(lines), "{lines:?}");
        }
        for lines in [&[][..], &[""], &["0a-1b"], &["\"0a-1b-gzip\"", "\"2c\""]] {
            assert!(!known(lines), "{lines:?}");
        }
    }

    #[test]
    fn what_changes_by_itself_is_in_the_tag_and_stops_no_write() {
        let [before, later, another] = [(1, 2), (1, 3), (2, 3)].map(|(kept, live)| View { kept, live });
        assert!(tag_of(&before) != tag_of(&later) && tag_of(&later) != tag_of(&another));
        let seen = IfMatch(Some(vec![tag_of(&before)]));
        assert!(seen.check(&later).is_ok());
        assert!(seen.fits(&later.revision().unwrap()) && !seen.fits(&another.revision().unwrap()));
        assert!(matches!(seen.check(&another), Err(Error::Stale(now)) if now == tag_of(&another)));
    }
}
