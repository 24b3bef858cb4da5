//! A body verified against the signed digest. It is hashed while streaming; a mismatch is an error at its end, before the reader uses the
//! content.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use federation::id::Digest;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use ring::digest::{Context as Sha256, SHA256};

/// The body's digest differs from the signed one.
#[derive(Debug, thiserror::Error)]
#[error("the body is not the one whose digest was signed")]
struct OtherBody;

/// Streams `body`, and fails at its end if its SHA-256 differs.
pub(super) fn with_digest(body: Body, sha256: Digest) -> Body {
    Body::new(DigestBody { body, expected: sha256, hash: Some(Sha256::new(&SHA256)) })
}

/// Whether reading failed because of a digest mismatch.
pub(in crate::http) fn is_other_body(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |error| error.source());
    causes.any(|error| error.is::<OtherBody>())
}

struct DigestBody {
    body: Body,
    expected: Digest,
    /// `None` after the end.
    hash: Option<Sha256>,
}

impl HttpBody for DigestBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                if let (Some(hash), Some(data)) = (&mut self.hash, frame.data_ref()) {
                    hash.update(data);
                }
            }
            Poll::Ready(None) => {
                let is_other = self.hash.take().is_some_and(|hash| hash.finish().as_ref() != self.expected.0);
                if is_other {
                    return Poll::Ready(Some(Err(axum::Error::new(OtherBody))));
                }
            }
            Poll::Ready(Some(Err(_))) | Poll::Pending => {}
        }
        polled
    }

    /// False until the digest was compared, so even an empty body is read to its end.
    fn is_end_stream(&self) -> bool {
        self.hash.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use http_body_util::BodyExt as _;

    use super::*;

    fn body(pieces: &'static [&'static str]) -> Body {
        Body::from_stream(stream::iter(pieces.iter().map(|piece| Ok::<_, std::io::Error>(*piece))))
    }

    #[tokio::test]
    async fn a_body_passes_in_pieces_and_another_fails_at_its_end() {
        let expected = crate::digest(b"abcdef");
        let read = |body| with_digest(body, expected).collect();
        assert_eq!(read(body(&["abc", "def"])).await.unwrap().to_bytes(), "abcdef");
        for other in [body(&["abc", "deg"]), body(&["abc"]), body(&["abcdef", "g"]), Body::empty()] {
            assert!(is_other_body(&read(other).await.unwrap_err()));
        }
        let broken = Body::from_stream(stream::iter([Ok("abc"), Err(std::io::Error::other("gone"))]));
        assert!(!is_other_body(&read(broken).await.unwrap_err()));
        let mut wrong = with_digest(body(&["abc", "deg"]), expected);
        assert_eq!(wrong.frame().await.unwrap().unwrap().into_data().unwrap(), "abc", "before the end is known");
    }
}
