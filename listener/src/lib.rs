//! Accepts connections: what the coordinator and the model server need to serve HTTP.
//!
//! A [`Listener`] limits the connections of each kind of peer (`pool`), the bytes that were not sent yet (`unsent`) and the time that a peer may
//! take, and hands requests to a router. It does not know what they mean: it finds participants through [`Members`]. A server whose peers
//! are all of one kind is served by [`simple`].

mod accept;
mod connection;
mod digest;
mod inspected;
mod key;
mod members;
mod peer;
mod pool;
mod process;
mod read_deadline;
mod serve;
pub mod simple;
mod strict_lines;
mod timeouts;
mod tls;
mod unsent;

pub use connection::Connection;
pub use key::Key;
pub use members::{Members, NotMember};
pub use peer::Peer;
pub use pool::connection_limits::ConnectionLimits;
pub use pool::connection_pool::{COME_BACK_S, ConnectionCounts, ConnectionGuard};
pub use process::poison_free_mutex::PoisonFreeMutex;
pub use process::program::version;
pub use process::recorder::recorder;
pub use serve::{Entrance, Listener, PoolObserver};
pub use timeouts::Timeouts;
pub use tls::acceptor::{AcceptorError, AcceptorFiles, acceptor};
pub use tls::files::{TlsFileError, certificates_of, read_certificates, read_certified_key};
pub use tls::server_config::server_config;
pub use unsent::{PIECE, Waits};
