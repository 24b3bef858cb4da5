//! Consumes the rest of an unread body.
//!
//! A request may be rejected before its body has arrived. If the body were dropped, HTTP/2 would reset the stream right
//! after the answer, and many clients would see only the reset; HTTP/1.1 would close the connection. Small bodies are
//! therefore read to their end before the answer is sent.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::{Request, header};
use http_body_util::BodyExt as _;
use hyper::body::{Body as HttpBody, Frame, SizeHint};

use crate::guarded::Guarded;

/// Largest rest to read, in bytes.
const REST_MAX: u64 = 64 << 10;
/// Time limit for reading it.
const PATIENCE: Duration = Duration::from_secs(5);

/// The body, after its handler has dropped it.
pub(super) struct UnreadBody(Arc<Guarded<Option<Body>>>);

/// Lends the request's body to its handler. It does not come back if there is none, if it is large, or if the peer
/// waits for permission to send it.
pub(super) fn lend(request: Request<Body>) -> (Request<Body>, Option<UnreadBody>) {
    let is_large = |body: &Body| body.size_hint().lower() > REST_MAX;
    if request.body().is_end_stream() || is_large(request.body()) || request.headers().contains_key(header::EXPECT) {
        return (request, None);
    }
    let back = Arc::new(Guarded::new(None));
    let request = request.map(|body| Body::new(LentBody { body, is_over: false, back: Arc::clone(&back) }));
    (request, Some(UnreadBody(back)))
}

impl UnreadBody {
    pub(super) async fn drain(self) {
        let rest = self.0.lock().take();
        let Some(mut rest) = rest else { return };
        let reading = async {
            let mut bytes = 0;
            while bytes <= REST_MAX
                && let Some(Ok(frame)) = rest.frame().await
            {
                bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
            }
        };
        // A slower peer is answered all the same.
        let _ = tokio::time::timeout(PATIENCE, reading).await;
    }
}

/// A body that is returned if dropped before its end.
struct LentBody {
    body: Body,
    is_over: bool,
    back: Arc<Guarded<Option<Body>>>,
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
