//! How many peers a listener lets in.

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
