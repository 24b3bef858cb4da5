//! The peer of a connection.

use std::net::{IpAddr, Ipv4Addr};

use crate::peer::Peer;

/// Properties of a connection; the listener puts them into every request's extensions.
#[derive(Clone, Copy, Debug)]
pub struct Connection {
    /// Address of the peer, without its port.
    pub address: IpAddr,
    /// The client certificate's holder, verified in the handshake; not necessarily an enrolled participant.
    pub peer: Option<Peer>,
}

impl Default for Connection {
    fn default() -> Self {
        Self { address: Ipv4Addr::UNSPECIFIED.into(), peer: None }
    }
}
