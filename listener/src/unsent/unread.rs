//! Tracks since when the streams of a connection have waited for their peer to read.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::process::poison_free_mutex::PoisonFreeMutex;

/// A stream that waits for its peer to read; dropped when it no longer waits.
pub(super) struct WaitingStream {
    number: u64,
    unread: Arc<UnreadStreams>,
}

impl WaitingStream {
    pub(super) fn begin(unread: Arc<UnreadStreams>) -> Self {
        Self { number: unread.begin(), unread }
    }
}

impl Drop for WaitingStream {
    fn drop(&mut self) {
        self.unread.end(self.number);
    }
}

/// The waiting streams of a connection.
#[derive(Default)]
pub(super) struct UnreadStreams {
    pieces: PoisonFreeMutex<Pieces>,
    /// Signals the first waiting stream.
    some: Notify,
}

#[derive(Default)]
struct Pieces {
    next: u64,
    /// In order of time.
    since: BTreeMap<u64, Instant>,
}

impl UnreadStreams {
    fn begin(&self) -> u64 {
        let (number, is_first) = self.pieces.with(|pieces| {
            pieces.next += 1;
            pieces.since.insert(pieces.next, Instant::now());
            (pieces.next, pieces.since.len() == 1)
        });
        if is_first {
            self.some.notify_one();
        }
        number
    }

    fn end(&self, number: u64) {
        self.pieces.lock().since.remove(&number);
    }

    /// Resolves when a stream has waited for this long.
    pub(super) async fn stalled(&self, patience: Duration) {
        loop {
            let oldest = self.pieces.with(|pieces| pieces.since.first_key_value().map(|(_, since)| *since));
            match oldest {
                None => self.some.notified().await,
                Some(since) if since.elapsed() >= patience => return,
                Some(since) => tokio::time::sleep_until(since + patience).await,
            }
        }
    }
}
