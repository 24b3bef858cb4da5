//! Accepts connections until it can.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};

/// Pause after a failed accept.
const PAUSE: Duration = Duration::from_millis(50);

/// The next connection. After a failure it waits and tries again.
pub(crate) async fn accept(tcp: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match tcp.accept().await {
            Ok(accepted) => return accepted,
            Err(error) => {
                // Most likely out of file descriptors: lets other connections end.
                tracing::warn!(%error, "cannot accept a connection: {error}");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}
