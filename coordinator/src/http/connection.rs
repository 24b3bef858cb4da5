//! Who is at the other end of a connection.

use std::net::{IpAddr, Ipv4Addr};

use crate::identity::Peer;

/// What is known of a connection; the listener puts it into every request's extensions.
#[derive(Clone, Copy, Debug)]
pub struct Connection {
    /// Where it comes from.
    pub address: IpAddr,
    /// Whom the client certificate names, verified in the handshake; whether a participant has it is not said.
    pub peer: Option<Peer>,
}

impl Default for Connection {
    fn default() -> Self {
        Self { address: Ipv4Addr::UNSPECIFIED.into(), peer: None }
    }
}
