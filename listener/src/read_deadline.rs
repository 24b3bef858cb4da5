//! A connection whose peer must send its first bytes in time.
//!
//! hyper waits indefinitely for the bytes that distinguish HTTP/2 from HTTP/1.1; peers that never send them would
//! occupy all connections. Later phases have hyper's own limits.

use std::io::{Error, ErrorKind, IoSlice, Result};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// Length of HTTP/2's preface (RFC 9113 §3.4); no HTTP/1.1 request that we serve is shorter.
const PREFACE: usize = 24;

/// Reading fails if the first bytes do not arrive in time.
pub(crate) struct ReadDeadline<S> {
    stream: S,
    /// Until they have arrived: the number of missing bytes, and the timeout.
    waiting: Option<(usize, Pin<Box<Sleep>>)>,
}

impl<S> ReadDeadline<S> {
    /// Gives the peer of `stream` this much time, starting now.
    #[must_use]
    pub(crate) fn new(stream: S, patience: Duration) -> Self {
        Self { stream, waiting: Some((PREFACE, Box::pin(tokio::time::sleep(patience)))) }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ReadDeadline<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if let Some((missing, end)) = &mut self.waiting {
            *missing = missing.saturating_sub(buffer.filled().len() - before);
            if *missing == 0 {
                self.waiting = None;
            } else if polled.is_pending() && end.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Err(Error::new(ErrorKind::TimedOut, "the peer does not speak")));
            }
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ReadDeadline<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
