//! Limits of a listener.

use std::time::Duration;

#[derive(Clone, Copy, Debug)]
pub(crate) struct ServeSettings {
    /// Time for a handshake, for looking up its certificate, and for a request's headers: each.
    pub(crate) header_timeout: Duration,
    /// Time for a peer to read a piece of an answer.
    pub(crate) unread_timeout: Duration,
    /// Lifetime of a connection without valid credentials, or with a certificate that is no longer valid.
    pub(crate) stranger_lifetime: Duration,
    /// Time to complete requests on a connection that has to close.
    pub(crate) request_timeout: Duration,
    /// Time to complete accepted requests after a shutdown began.
    pub(crate) shutdown_timeout: Duration,
    pub(crate) connection_limits: ConnectionLimits,
    /// Bytes of model versions that were read but not yet sent, over all peers.
    pub(crate) unsent_max_bytes: usize,
}

/// Maximum number of concurrent connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionLimits {
    /// In the handshake, or being told that there is no room; half as many per address.
    pub(crate) arriving: usize,
    /// With an operator token.
    pub(crate) operators: usize,
    /// With a participant's certificate.
    pub(crate) members: usize,
    /// Per participant.
    pub(crate) each_member: usize,
    /// Without valid credentials.
    pub(crate) strangers: usize,
    /// Without valid credentials, per address.
    pub(crate) each_address: usize,
}
