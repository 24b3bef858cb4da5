//! `GET …/models/{version}/parameters`: a model version as safetensors, whole or in part.
//!
//! The file is streamed in small pieces. Its digest is its `ETag`: a version never changes.

use std::io::{Read as _, Seek as _, SeekFrom};
use std::ops::Range;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use federation::id::{Attempt, TaskId};
use federation::model_version::ModelVersion;
use federation::round::RoundState;
use http::{HeaderMap, StatusCode, header};
use listener::PIECE;
use store::entity::model_version::{StoredVersion, WantedVersion};
use store::{BlobRead, StoreError};
use utoipa::IntoParams;
use utoipa::openapi::path::{Parameter, ParameterIn};
use wire::headers::MEDIA_SAFETENSORS;
use wire::route;

use crate::admission::{Fact, Inbox};
use crate::http::app::App;
use crate::http::auth::operators::Reader;
use crate::http::extract::Path;
use crate::http::openapi::{Octets, header};
use crate::http::reply::etag::is_named;
use crate::http::reply::problem::{Error, Result};
use crate::maintenance::damage::is_damage;

struct Headers;

impl IntoParams for Headers {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        vec![
            header("if-none-match", false, "answered with 304 if it names this version"),
            header("range", false, "one range of bytes, answered with 206 or 416"),
            header("if-range", false, "the range only if it names this version"),
        ]
    }
}

/// Download a model version as safetensors.
#[utoipa::path(
    get, path = route::MODEL_PARAMETERS, params(Headers), security(("certificate" = []), ("token" = [])),
    responses(
        (status = 200, body = inline(Octets), content_type = MEDIA_SAFETENSORS),
        (status = 206, body = inline(Octets), content_type = MEDIA_SAFETENSORS, description = "the range that was asked for"),
        (status = 304, description = "the version that was named is this one"),
        (status = 410, description = "the version is kept no more (`version-removed`)"),
        (status = 416),
    ),
)]
pub(in crate::http) async fn parameters(
    reader: Reader,
    State(app): State<Arc<App>>,
    Path((task, version)): Path<(String, u32)>,
    headers: HeaderMap,
) -> Result<Response> {
    // SDKs name a task by its id, so only a missing version needs a lookup.
    let named = task;
    let task: TaskId = match (&reader, named.parse()) {
        (Reader::Viewer(task), _) => *task,
        (Reader::Participant(_), Ok(id)) => id,
        (Reader::Participant(_), Err(_)) => app.task(&named).await?.id,
    };
    let wanted_version = app.store.read("find_parameters", |tx| {
        let reader = &reader;
        Box::pin(async move {
            Ok::<_, StoreError>(match reader {
                Reader::Viewer(_) => tx.stored_version(task, version).await?.map(|version| (version, None)),
                Reader::Participant(participant) => {
                    let found = tx.wanted_version(task, version, *participant).await?;
                    found.map(|WantedVersion { version, attempt }| (version, attempt))
                }
            })
        })
    });
    let Some((model, charged)) = wanted_version.await? else {
        app.task(&named).await?;
        return Err(Error::NotFound(format!("the task has no model version {version}")));
    };
    let StoredVersion { model, removed_at, .. } = model;
    let etag = format!("\"{}\"", model.sha256);
    if is_named(&headers, header::IF_NONE_MATCH, &etag) {
        return Ok((StatusCode::NOT_MODIFIED, [(header::ETAG, etag)]).into_response());
    }
    if removed_at.is_some() {
        return Err(Error::VersionRemoved(version));
    }
    let range = wanted(&headers, &etag, model.bytes)?;
    let bytes = range.clone().unwrap_or(0..model.bytes);
    let body = stream(&app, &model, bytes.clone(), charged).await?;
    let mut response = (
        [
            (header::CONTENT_TYPE, MEDIA_SAFETENSORS.to_owned()),
            (header::ETAG, etag),
            (header::ACCEPT_RANGES, "bytes".to_owned()),
            (header::CACHE_CONTROL, "private, max-age=31536000, immutable".to_owned()),
            (header::CONTENT_LENGTH, (bytes.end - bytes.start).to_string()),
        ],
        body,
    )
        .into_response();
    if range.is_some() {
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
        let text = format!("bytes {}-{}/{}", bytes.start, bytes.end - 1, model.bytes);
        response.headers_mut().insert(header::CONTENT_RANGE, text.parse().map_err(Error::fault)?);
    }
    Ok(response)
}

/// The requested range, if it is a single range of this version, RFC 9110 §14.
fn wanted(headers: &HeaderMap, etag: &str, size: u64) -> Result<Option<Range<u64>>> {
    // Requires an identical tag: RFC 9110 §13.1.5 uses the strong comparison.
    if headers.get(header::IF_RANGE).is_some_and(|tag| tag.as_bytes() != etag.as_bytes()) {
        return Ok(None);
    }
    let Some(text) = headers.get(header::RANGE).and_then(|value| value.to_str().ok()) else { return Ok(None) };
    // For several ranges or other units, the whole file is a valid answer.
    let Some((first, last)) =
        text.strip_prefix("bytes=").filter(|set| !set.contains(',')).and_then(|r| r.split_once('-'))
    else {
        return Ok(None);
    };
    let number = |text: &str| text.trim().parse::<u64>().ok();
    let range = match (number(first), number(last)) {
        (Some(first), Some(last)) if first <= last => first..last.saturating_add(1).min(size),
        (Some(first), None) if last.trim().is_empty() => first..size,
        (None, Some(suffix)) if first.trim().is_empty() => size.saturating_sub(suffix)..size,
        _ => return Ok(None),
    };
    if range.start < range.end { Ok(Some(range)) } else { Err(Error::Range(size)) }
}

/// Counts the bytes actually sent, however the stream ends.
struct Meter {
    inbox: Inbox,
    charged: Option<(Attempt, RoundState)>,
    sent: u64,
}

impl Drop for Meter {
    fn drop(&mut self) {
        metrics::counter!("tributary_model_bytes_total").increment(self.sent);
        if let Some((attempt, state)) = self.charged.filter(|_| self.sent > 0) {
            self.inbox.note(Fact::BytesDown { attempt, state, bytes: self.sent });
        }
    }
}

/// Streams the file, and opens it only while reading a piece: a stalled peer must not keep it open.
async fn stream(
    app: &App,
    model: &ModelVersion,
    bytes: Range<u64>,
    charged: Option<(Attempt, RoundState)>,
) -> Result<Body> {
    let (blobs, sha256) = (Arc::clone(app.store.blobs()), model.sha256);
    match crate::maintenance::damage::open_model(&app.store, &*blobs, model, app.now()).await {
        Ok(blob) if blob.size() == model.bytes => {}
        Ok(_) => return Err(Error::fault(format!("blob {sha256} has another size than its row says"))),
        Err(error) if is_damage(&error) => {
            return Err(Error::Damaged(format!("model version {} is damaged here: {error}", model.version)));
        }
        Err(error) => return Err(error.into()),
    }
    let meter = Meter { inbox: app.inbox.clone(), charged, sent: 0 };
    let pieces = futures_util::stream::try_unfold((blobs, bytes, meter), move |(blobs, bytes, mut meter)| async move {
        if bytes.is_empty() {
            return Ok(None);
        }
        // A file modified since its last check is verified again; a changed file ends the stream.
        let blob = blobs.open_verified(sha256).await?;
        let Range { start, end } = bytes;
        // Allocated here: memory allocated by a file thread stays with that thread when freed elsewhere.
        let room = vec![0; usize::try_from(end - start).unwrap_or(PIECE).min(PIECE)];
        let piece = store::with_files(move || fill(room, blob, start)).await??;
        meter.sent += piece.len() as u64;
        let rest = start + piece.len() as u64..end;
        Ok::<_, anyhow::Error>(Some((piece, (blobs, rest, meter))))
    });
    Ok(Body::from_stream(pieces))
}

/// Fills `room` with the bytes from `start` on.
fn fill(mut room: Vec<u8>, mut blob: Box<dyn BlobRead>, start: u64) -> std::io::Result<Bytes> {
    blob.seek(SeekFrom::Start(start))?;
    blob.read_exact(&mut room)?;
    Ok(room.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_the_rfc_says() {
        let ask = |text: &str| {
            let headers = HeaderMap::from_iter([(header::RANGE, text.parse().unwrap())]);
            wanted(&headers, "\"e\"", 100).map_err(|error| error.to_string())
        };
        assert_eq!(ask("bytes=0-9"), Ok(Some(0..10)));
        assert_eq!(ask("bytes=90-"), Ok(Some(90..100)));
        assert_eq!(ask("bytes=90-1000"), Ok(Some(90..100)));
        assert_eq!(ask("bytes=-10"), Ok(Some(90..100)));
        assert_eq!(ask("bytes=-1000"), Ok(Some(0..100)));
        for whole in ["bytes=1-2,5-6", "lines=1-2", "bytes=9-1", "bytes=x-y", "bytes=-", "bytes=5"] {
            assert_eq!(ask(whole), Ok(None), "{whole}");
        }
        for outside in ["bytes=100-", "bytes=100-200", "bytes=-0"] {
            assert!(ask(outside).is_err(), "{outside}");
        }
    }

    #[test]
    fn a_range_of_another_version_is_the_whole() {
        let mut headers = HeaderMap::from_iter([(header::RANGE, "bytes=0-9".parse().unwrap())]);
        for (tag, expected) in [("\"e\"", Some(0..10)), ("\"other\"", None), ("W/\"e\"", None), ("*", None)] {
            headers.insert(header::IF_RANGE, tag.parse().unwrap());
            assert_eq!(wanted(&headers, "\"e\"", 100).unwrap(), expected, "{tag}");
        }
    }
}
