//! How long a listener waits for its peers.

use std::time::Duration;

/// Durations after which a listener closes connections.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// For the TLS handshake, and again for a request's headers.
    pub header: Duration,
    /// For requests in progress on a connection that is to close.
    pub request: Duration,
    /// Lifetime of a connection without valid credentials.
    pub stranger: Duration,
    /// For a piece of an answer (64 KiB) to be read.
    pub unread: Duration,
    /// For requests in progress at shutdown.
    pub shutdown: Duration,
}
