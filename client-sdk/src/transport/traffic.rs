//! Bytes sent and received.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

/// Bytes of requests and of their answers: heads and bodies, without those of TLS and the layers below.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    pub sent: u64,
    pub received: u64,
}

impl Traffic {
    /// Bytes sent and received together.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.sent.saturating_add(self.received)
    }

    pub(crate) fn add(&mut self, more: Self) {
        self.sent = self.sent.saturating_add(more.sent);
        self.received = self.received.saturating_add(more.received);
    }

    pub(crate) fn since(self, earlier: Self) -> Self {
        let Self { sent, received } = earlier;
        Self { sent: self.sent.saturating_sub(sent), received: self.received.saturating_sub(received) }
    }
}

/// Counts while requests are under way.
#[derive(Default)]
pub(super) struct Counter {
    sent: AtomicU64,
    received: AtomicU64,
}

impl Counter {
    pub(super) fn so_far(&self) -> Traffic {
        Traffic { sent: self.sent.load(Ordering::Relaxed), received: self.received.load(Ordering::Relaxed) }
    }

    /// Counts a head with these headers, and the given number of body bytes.
    pub(super) fn sent(&self, headers: &http::HeaderMap, bytes: usize) {
        self.sent.fetch_add(head(headers) + bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn head_received(&self, headers: &http::HeaderMap) {
        self.received.fetch_add(head(headers), Ordering::Relaxed);
    }

    pub(super) fn received(&self, bytes: usize) {
        self.received.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// As HTTP/1.1 writes it, with its first line left out.
fn head(headers: &http::HeaderMap) -> u64 {
    headers.iter().map(|(name, value)| (name.as_str().len() + value.len() + 4) as u64).sum()
}
