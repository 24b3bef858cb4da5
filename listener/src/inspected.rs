//! A stream with an inspector of the bytes that arrive on it.

use std::io::{IoSlice, Result};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Inspects the bytes that arrive on a stream.
pub(crate) trait Inspector: Unpin {
    /// Called after each attempt to read, with the bytes that arrived and the result. It may change the bytes, and returns the result for
    /// the reader.
    fn inspect(&mut self, cx: &mut Context<'_>, arrived: &mut [u8], polled: Poll<Result<()>>) -> Poll<Result<()>>;
}

/// A stream whose arriving bytes pass an inspector. Written bytes pass unchanged.
pub(crate) struct Inspected<S, I> {
    stream: S,
    inspector: I,
}

impl<S, I> Inspected<S, I> {
    pub(crate) fn new(stream: S, inspector: I) -> Self {
        Self { stream, inspector }
    }
}

impl<S: AsyncRead + Unpin, I: Inspector> AsyncRead for Inspected<S, I> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        self.inspector.inspect(cx, &mut buffer.filled_mut()[before..], polled)
    }
}

impl<S: AsyncWrite + Unpin, I: Inspector> AsyncWrite for Inspected<S, I> {
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
