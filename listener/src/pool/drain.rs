//! Consumes the rest of an unread body.
//!
//! A request may be rejected before its body has arrived. If the body were dropped, HTTP/2 would reset the stream right
//! after the answer, and many clients would see only the reset; HTTP/1.1 would close the connection, and the operating system
//! would reset it because of what was not read. Small bodies are therefore read to their end before the answer is sent. Of
//! larger ones, the rest is read and dropped while the answer is on its way, so that the peer can read it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::{Request, header};
use http_body_util::BodyExt as _;
use hyper::body::{Body as HttpBody, Frame, SizeHint};

use crate::process::poison_free_mutex::PoisonFreeMutex;

/// Largest rest to read, in bytes.
const REST_MAX: u64 = 64 << 10;
/// Time limit for reading it.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// Largest rest to read after the answer, in bytes, and the time limit for that.
const LINGER_MAX: u64 = 256 << 20;
const LINGER: Duration = Duration::from_secs(10);

/// The body, after its handler has dropped it.
pub(crate) struct UnreadBody(Arc<PoisonFreeMutex<Option<Body>>>);

/// Lends the request's body to its handler. Returns an [`UnreadBody`] unless the body is empty or the request has an
/// `Expect` header.
pub(crate) fn lend(request: Request<Body>) -> (Request<Body>, Option<UnreadBody>) {
    if request.body().is_end_stream() || request.headers().contains_key(header::EXPECT) {
        return (request, None);
    }
    let back = Arc::new(PoisonFreeMutex::new(None));
    let request = request.map(|body| Body::new(LentBody { body, is_over: false, back: Arc::clone(&back) }));
    (request, Some(UnreadBody(back)))
}

impl UnreadBody {
    /// Reads a small rest to its end. A larger rest, and that of a slow peer, is read in the background while the answer is sent.
    pub(crate) async fn drain(self) {
        let rest = self.0.lock().take();
        let Some(mut rest) = rest else { return };
        let is_small = rest.size_hint().lower() <= REST_MAX;
        if is_small && tokio::time::timeout(DRAIN_TIMEOUT, skip(&mut rest, REST_MAX)).await == Ok(true) {
            return;
        }
        tokio::spawn(async move {
            // Whatever comes later is lost with the connection, or its stream.
            let _ = tokio::time::timeout(LINGER, skip(&mut rest, LINGER_MAX)).await;
        });
    }
}

/// Reads a body, at most so many bytes and a frame; whether it is over.
async fn skip(body: &mut Body, most: u64) -> bool {
    let mut bytes = 0;
    while bytes <= most {
        match body.frame().await {
            Some(Ok(frame)) => bytes += frame.data_ref().map_or(0, |data| data.len() as u64),
            Some(Err(_)) | None => return true,
        }
    }
    false
}

/// A body that is returned if dropped before its end.
struct LentBody {
    body: Body,
    is_over: bool,
    back: Arc<PoisonFreeMutex<Option<Body>>>,
}

impl HttpBody for LentBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        self.is_over |= matches!(polled, Poll::Ready(None | Some(Err(_))));
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for LentBody {
    fn drop(&mut self) {
        if !self.is_over && !self.body.is_end_stream() {
            let body = std::mem::take(&mut self.body);
            *self.back.lock() = Some(body);
        }
    }
}
