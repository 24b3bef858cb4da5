//! Bounds that a listener keeps to.

use std::time::Duration;

/// Bounds of the listener.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServeSettings {
    /// For a handshake, for finding out whose certificate it showed, and for a request's headers: each.
    pub(crate) header_timeout: Duration,
    /// For a peer to take a piece of an answer.
    pub(crate) unread_timeout: Duration,
    /// For a connection that has shown no good credentials, or whose certificate is good no longer.
    pub(crate) stranger_lifetime: Duration,
    /// For what a connection has begun when it has to go.
    pub(crate) request_timeout: Duration,
    /// For what was accepted, once a shutdown began.
    pub(crate) shutdown_timeout: Duration,
    /// Connections at once.
    pub(crate) crowds: Crowds,
    /// Bytes of model versions that were read and not yet sent, to all peers together.
    pub(crate) unsent_max_bytes: usize,
}

/// How many connections there may be at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Crowds {
    /// That shake hands, or are told that there is no place; half as many from one address.
    pub(crate) arriving: usize,
    /// With an operator's token.
    pub(crate) operators: usize,
    /// With a certificate that a participant has.
    pub(crate) members: usize,
    /// With the same participant's.
    pub(crate) each_member: usize,
    /// Without good credentials.
    pub(crate) strangers: usize,
    /// Without good credentials and from the same address.
    pub(crate) each_address: usize,
}
