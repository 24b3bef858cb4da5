//! The time in which a peer must send its first bytes.
//!
//! hyper waits indefinitely for the bytes that distinguish HTTP/2 from HTTP/1.1; peers that never send them would
//! occupy all connections. Later phases have hyper's own limits.

use std::io::{Error, ErrorKind, Result};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Sleep;

use crate::inspected::Inspector;

/// Length of HTTP/2's preface (RFC 9113 §3.4); no HTTP/1.1 request that we serve is shorter.
const PREFACE: usize = 24;

/// Reading fails if the first bytes do not arrive in time.
pub(crate) struct ReadDeadline {
    /// Until they have arrived: the number of missing bytes, and the timeout.
    waiting: Option<(usize, Pin<Box<Sleep>>)>,
}

impl ReadDeadline {
    /// Gives the peer this much time, starting now.
    #[must_use]
    pub(crate) fn new(patience: Duration) -> Self {
        Self { waiting: Some((PREFACE, Box::pin(tokio::time::sleep(patience)))) }
    }
}

impl Inspector for ReadDeadline {
    fn inspect(&mut self, cx: &mut Context<'_>, arrived: &mut [u8], polled: Poll<Result<()>>) -> Poll<Result<()>> {
        if let Some((missing, end)) = &mut self.waiting {
            *missing = missing.saturating_sub(arrived.len());
            if *missing == 0 {
                self.waiting = None;
            } else if polled.is_pending() && end.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Err(Error::new(ErrorKind::TimedOut, "the peer does not speak")));
            }
        }
        polled
    }
}
