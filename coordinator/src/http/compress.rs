//! Answers to operators are compressed for whoever can read that (RFC 9110 §8.4), and left out where they are known already.
//!
//! Only what is read is compressed, and only here: an answer to `GET` has no secret, whose letters its length could tell to somebody
//! who has a part of it reflected (BREACH). Secrets are in answers to `POST`, and participants' routes are not behind this layer: what
//! they fetch is masked, or a model, and does not become shorter.

use std::io::{self, Write as _};
use std::mem;

use axum::BoxError;
use axum::body::{Body, BodyDataStream};
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::{StreamExt as _, stream};
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, ETAG, IF_NONE_MATCH, VARY};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Body as _;
use tokio::task::{JoinError, spawn_blocking};

use super::encoding::accepts_gzip;
use super::etag;
use super::problem::{Error, Result};

/// A shorter answer fits one packet as it is.
const LEAST_BYTES: u64 = 1 << 10;
/// Work on so many bytes of JSON takes about a millisecond.
const LONG_BYTES: usize = 64 << 10;
/// Of 1 to 9: the next ones take much time for few bytes.
const LEVEL: u32 = 4;

/// Compresses JSON that a `GET` is answered with, and answers 304 to whoever has it.
pub(super) async fn compress(request: Request, next: Next) -> Response {
    if request.method() != Method::GET {
        return next.run(request).await;
    }
    let asked = request.headers().clone();
    let (mut parts, body) = next.run(request).await.into_parts();
    if parts.status != StatusCode::OK || !is_json(&parts.headers) {
        return Response::from_parts(parts, body);
    }
    let length = body.size_hint().exact();
    let is_packed = accepts_gzip(&asked) && length.is_none_or(|bytes| bytes >= LEAST_BYTES);
    parts.headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
    if is_packed && let Some(tag) = parts.headers.get(ETAG).and_then(etag::of_gzip) {
        parts.headers.insert(ETAG, tag);
    }
    if is_known(&asked, &parts.headers) {
        parts.status = StatusCode::NOT_MODIFIED;
        parts.headers.remove(CONTENT_TYPE);
        parts.headers.remove(CONTENT_LENGTH);
        return Response::from_parts(parts, Body::empty());
    }
    if !is_packed {
        return Response::from_parts(parts, body);
    }
    parts.headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    parts.headers.remove(CONTENT_LENGTH);
    let packed = match length {
        Some(_) => whole(body).await,
        None => Ok(streamed(body)),
    };
    packed.map_or_else(|error| error.into_response(), |body| Response::from_parts(parts, body))
}

/// Runs work on so many bytes where it keeps no other request waiting, if it is long.
pub(super) async fn apart<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, JoinError> {
    if bytes < LONG_BYTES { Ok(work()) } else { spawn_blocking(work).await }
}

fn is_json(answer: &HeaderMap) -> bool {
    answer.get(CONTENT_TYPE).is_some_and(|media| media == "application/json" || media == "application/x-ndjson")
}

fn is_known(asked: &HeaderMap, answer: &HeaderMap) -> bool {
    let tag = answer.get(ETAG).and_then(|tag| tag.to_str().ok());
    tag.is_some_and(|tag| etag::is_named(asked, IF_NONE_MATCH, tag))
}

fn encoder() -> GzEncoder<Vec<u8>> {
    GzEncoder::new(Vec::new(), Compression::new(LEVEL))
}

/// An answer in memory, which stays one: its length is known.
async fn whole(body: Body) -> Result<Body> {
    let plain = body.collect().await.map_err(Error::fault)?.to_bytes();
    let packed = apart(plain.len(), move || {
        let mut encoder = encoder();
        encoder.write_all(&plain)?;
        encoder.finish()
    });
    Ok(packed.await.map_err(Error::fault)?.map_err(Error::fault)?.into())
}

/// An answer that is read piece by piece, as its peer takes it.
fn streamed(body: Body) -> Body {
    let begun = Some((body.into_data_stream(), encoder()));
    Body::from_stream(stream::try_unfold(begun, |state| async move {
        match state {
            Some((pieces, encoder)) => next_packed(pieces, encoder).await.map(Some),
            None => Ok(None),
        }
    }))
}

/// A stream of pieces that is not at its end, and what it is compressed by.
type Rest = Option<(BodyDataStream, GzEncoder<Vec<u8>>)>;

/// The next bytes of the compressed stream, and what is left of it.
async fn next_packed(mut pieces: BodyDataStream, mut encoder: GzEncoder<Vec<u8>>) -> Result<(Vec<u8>, Rest), BoxError> {
    while let Some(piece) = pieces.next().await.transpose()? {
        encoder = apart(piece.len(), move || pushed(encoder, &piece)).await??;
        let bytes = mem::take(encoder.get_mut());
        // Nothing comes of a short piece before others follow it.
        if !bytes.is_empty() {
            return Ok((bytes, Some((pieces, encoder))));
        }
    }
    Ok((encoder.finish()?, None))
}

fn pushed(mut encoder: GzEncoder<Vec<u8>>, piece: &[u8]) -> io::Result<GzEncoder<Vec<u8>>> {
    encoder.write_all(piece)?;
    Ok(encoder)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(packed: &[u8]) -> Vec<u8> {
        let mut plain = Vec::new();
        io::Read::read_to_end(&mut flate2::read::GzDecoder::new(packed), &mut plain).unwrap();
        plain
    }

    #[tokio::test]
    async fn pieces_of_any_length_are_one_stream() {
        for lengths in [vec![], vec![0], vec![1, 0, 2], vec![5, LONG_BYTES + 1, 3], vec![40_000; 9]] {
            let pieces: Vec<Vec<u8>> = lengths.iter().map(|length| (0..*length).map(noise).collect()).collect();
            let plain = pieces.concat();
            let body = Body::from_stream(stream::iter(pieces.into_iter().map(Ok::<_, io::Error>)));
            let packed = streamed(body).collect().await.unwrap().to_bytes();
            assert_eq!(opened(&packed), plain, "{lengths:?}");
            let packed = whole(Body::from(plain.clone())).await.unwrap();
            assert!(packed.size_hint().exact().is_some());
            assert_eq!(opened(&packed.collect().await.unwrap().to_bytes()), plain, "{lengths:?}");
        }
    }

    /// Bytes of which little becomes shorter.
    fn noise(at: usize) -> u8 {
        (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()[6]
    }

    #[tokio::test]
    async fn a_stream_that_breaks_is_not_one_that_ends() {
        let pieces = [Ok(b"one".to_vec()), Err(io::Error::other("away"))];
        assert!(streamed(Body::from_stream(stream::iter(pieces))).collect().await.is_err());
    }
}
