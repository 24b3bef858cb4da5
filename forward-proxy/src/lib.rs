//! HTTP forward proxies: which of them leads to a server ([`Proxy`]), and tunnels through it ([`Dialer`]).
//!
//! TLS stays between client and server: a proxy sees the server's name, times and numbers of bytes.

mod dial;
mod error;
#[cfg(feature = "reqwest")]
mod for_reqwest;
mod setting;

pub use dial::{Dialer, Stream};
pub use error::ProxyError;
pub use setting::{BadProxy, Proxy, ProxyServer};
