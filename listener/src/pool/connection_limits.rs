//! How many peers a listener lets in.

/// Maximum number of concurrent connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// In the handshake, or being rejected for lack of room; half as many per address.
    pub arriving: usize,
    /// With an operator token.
    pub operators: usize,
    /// With a participant's certificate.
    pub members: usize,
    /// With one participant's certificate.
    pub each_member: usize,
    /// Without valid credentials.
    pub strangers: usize,
    /// Without valid credentials, per address.
    pub each_address: usize,
}
