//! Compresses responses to operators (gzip, RFC 9110 §8.4), and answers 304 for unchanged ones.
//!
//! Only responses to `GET` are compressed. They hold no secrets, so their length is useless to an attacker injecting text (BREACH). Secrets
//! are in responses to `POST`. Participants' routes are outside this layer: their downloads are masked or models, and compress badly. Event
//! streams are compressed in [`crate::records::event_feed`].

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

/// Minimum size of a compressed response in bytes: a shorter one fits one packet.
const LEAST_BYTES: u64 = 1 << 10;
/// Bytes of JSON that take about a millisecond to process.
const LONG_BYTES: usize = 64 << 10;
/// Of 1 to 9: higher levels take much longer and save few bytes.
const LEVEL: u32 = 4;

/// Compresses JSON responses to `GET`, and answers 304 for a matching entity tag.
pub(in crate::http) async fn compress(request: Request, next: Next) -> Response {
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

/// Runs work on `bytes` bytes; long work runs on a blocking thread, to keep other requests running.
pub(in crate::http) async fn apart<T: Send + 'static>(
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

/// Compresses a response of known length in memory, so that its new length is known.
async fn whole(body: Body) -> Result<Body> {
    let plain = body.collect().await.map_err(Error::fault)?.to_bytes();
    let packed = apart(plain.len(), move || {
        let mut encoder = encoder();
        encoder.write_all(&plain)?;
        encoder.finish()
    });
    Ok(packed.await.map_err(Error::fault)?.map_err(Error::fault)?.into())
}

/// Compresses a response piece by piece, at the peer's reading speed.
fn streamed(body: Body) -> Body {
    let begun = Some((body.into_data_stream(), encoder()));
    Body::from_stream(stream::try_unfold(begun, |state| async move {
        match state {
            Some((pieces, encoder)) => next_packed(pieces, encoder).await.map(Some),
            None => Ok(None),
        }
    }))
}

/// The rest of a stream of pieces, with its encoder; `None` at its end.
type Rest = Option<(BodyDataStream, GzEncoder<Vec<u8>>)>;

/// The next bytes of the compressed stream, and the rest of it.
async fn next_packed(mut pieces: BodyDataStream, mut encoder: GzEncoder<Vec<u8>>) -> Result<(Vec<u8>, Rest), BoxError> {
    while let Some(piece) = pieces.next().await.transpose()? {
        encoder = apart(piece.len(), move || pushed(encoder, &piece)).await??;
        let bytes = mem::take(encoder.get_mut());
        // The encoder buffers short pieces.
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

    /// Incompressible bytes.
    fn noise(at: usize) -> u8 {
        (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()[6]
    }

    #[tokio::test]
    async fn a_stream_that_breaks_is_not_one_that_ends() {
        let pieces = [Ok(b"one".to_vec()), Err(io::Error::other("away"))];
        assert!(streamed(Body::from_stream(stream::iter(pieces))).collect().await.is_err());
    }
}
