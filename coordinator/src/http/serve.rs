//! The listener: accepts, shakes hands, serves, and on shutdown finishes what it accepted.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use super::authenticate::Connection;
use super::prompt::Prompt;
use crate::identity::Peer;

/// How often HTTP/2 peers are asked whether they are still there, and for how long an answer is waited for.
const KEEP_ALIVE: Duration = Duration::from_secs(20);
/// Requests of one HTTP/2 connection at once.
const STREAMS_MAX: u32 = 256;
/// What one HTTP/2 stream, and one connection, may have on its way to us.
const STREAM_WINDOW: u32 = 512 << 10;
const CONNECTION_WINDOW: u32 = 4 << 20;

/// Bounds of the listener.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServeSettings {
    /// For a handshake, and again for a request's headers.
    pub(crate) header_timeout: Duration,
    /// For what was accepted, once a shutdown began.
    pub(crate) shutdown_timeout: Duration,
    /// Connections at once.
    pub(crate) connections_max: usize,
}

/// A bound socket that does not accept yet.
pub(crate) struct Listener {
    tcp: TcpListener,
    acceptor: TlsAcceptor,
    settings: ServeSettings,
}

impl Listener {
    /// Binds.
    ///
    /// # Errors
    /// The address cannot be had.
    pub(crate) async fn bind(address: SocketAddr, tls: ServerConfig, settings: ServeSettings) -> std::io::Result<Self> {
        let tcp = TcpListener::bind(address).await?;
        Ok(Self { tcp, acceptor: TlsAcceptor::from(Arc::new(tls)), settings })
    }

    /// The address that was bound.
    ///
    /// # Errors
    /// The operating system does not tell.
    pub(crate) fn address(&self) -> std::io::Result<SocketAddr> {
        self.tcp.local_addr()
    }

    /// Serves until `shutdown` is cancelled; then accepts no more, and returns when all that was accepted is answered or
    /// the time for that is over.
    pub(crate) async fn serve(self, router: Router, shutdown: CancellationToken) {
        let Self { tcp, acceptor, settings } = self;
        let permits = Arc::new(Semaphore::new(settings.connections_max));
        let graceful = GracefulShutdown::new();
        let builder = Arc::new(builder(&settings));
        loop {
            let accepted = tokio::select! {
                accepted = accept(&tcp, &permits) => accepted,
                () = shutdown.cancelled() => break,
            };
            let (stream, address, permit) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Out of file descriptors, most likely: give the others time to end.
                    tracing::warn!(%error, "cannot accept a connection: {error}");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let (acceptor, router, builder) = (acceptor.clone(), router.clone(), Arc::clone(&builder));
            let watcher = graceful.watcher();
            tokio::spawn(async move {
                let _permit = permit;
                let handshake = tokio::time::timeout(settings.header_timeout, shake_hands(&acceptor, stream, address));
                let Ok(Some((tls, connection))) = handshake.await else { return };
                let service = router.map_request(move |request: http::Request<hyper::body::Incoming>| {
                    let mut request = request.map(Body::new);
                    request.extensions_mut().insert(connection);
                    request
                });
                let tls = Prompt::new(tls, settings.header_timeout);
                let served = builder.serve_connection(TokioIo::new(tls), TowerToHyperService::new(service));
                if let Err(error) = watcher.watch(served.into_owned()).await {
                    tracing::debug!(%address, "connection of {address} ended: {error}");
                }
            });
        }
        drop(tcp);
        if tokio::time::timeout(settings.shutdown_timeout, graceful.shutdown()).await.is_err() {
            tracing::warn!("some requests did not end in the time that a shutdown waits");
        }
    }
}

async fn accept(
    tcp: &TcpListener,
    permits: &Arc<Semaphore>,
) -> std::io::Result<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
    // Never closed.
    let permit = Arc::clone(permits).acquire_owned().await.map_err(std::io::Error::other)?;
    let (stream, address) = tcp.accept().await?;
    Ok((stream, address, permit))
}

async fn shake_hands(
    acceptor: &TlsAcceptor,
    stream: TcpStream,
    address: SocketAddr,
) -> Option<(tokio_rustls::server::TlsStream<TcpStream>, Connection)> {
    // Small answers must not wait for more to come.
    let _ = stream.set_nodelay(true);
    match acceptor.accept(stream).await {
        Ok(tls) => {
            let leaf = tls.get_ref().1.peer_certificates().and_then(<[_]>::first);
            let connection = Connection { address: address.ip(), peer: leaf.and_then(Peer::from_certificate) };
            Some((tls, connection))
        }
        Err(error) => {
            metrics::counter!("tributary_handshakes_refused_total").increment(1);
            tracing::debug!(%address, "handshake with {address} failed: {error}");
            None
        }
    }
}

fn builder(settings: &ServeSettings) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(settings.header_timeout);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE);
    builder
}
