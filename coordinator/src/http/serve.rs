//! The listener: accepts connections, performs handshakes, serves requests, and completes them on shutdown.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use federation::id::ParticipantId;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use metrics::Counter;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::io::{InspectReader, InspectWriter};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::app::App;
use super::authenticate::member;
use super::connection::Connection;
use super::connection_limits::ConnectionLimits;
use super::connection_pool::{ConnectionCounts, ConnectionGuard, ConnectionPool};
use super::problem::Error;
use super::read_deadline::ReadDeadline;
use super::slots::Slot;
use super::unsent::{Bounds, PIECE, Unsent};
use crate::identity::Peer;

/// Interval of HTTP/2 keep-alive pings, and timeout of their answers.
const KEEP_ALIVE: Duration = Duration::from_secs(20);
/// Maximum number of concurrent requests on an HTTP/2 connection of a participant, and on any other.
const STREAMS_MAX: u32 = 64;
const STREAMS_MAX_OF_OTHERS: u32 = 32;
/// Receive window of an HTTP/2 stream, and of a connection.
const STREAM_WINDOW: u32 = 128 << 10;
const CONNECTION_WINDOW: u32 = 256 << 10;
/// How long a balancer may keep a connection without a request: longer than balancers do, so that it is they who close it.
const BALANCER_IDLE: Duration = Duration::from_secs(120);
/// Pause when nothing can be accepted.
const PAUSE: Duration = Duration::from_millis(50);

/// How the peers of a listener say who they are.
pub(crate) enum Entrance {
    /// In the TLS handshake.
    Tls(TlsAcceptor),
    /// By signed requests, which a balancer passes on one after the other (HTTP/1.1) without TLS.
    Signed,
    /// Not at all: without TLS, for health checks.
    Health,
}

/// A bound socket that does not accept connections yet.
pub(crate) struct Listener {
    tcp: TcpListener,
    entrance: Entrance,
    pool: ConnectionPool,
}

/// Observes a listener while it serves.
#[derive(Clone)]
pub(crate) struct PoolObserver(ConnectionPool);

impl PoolObserver {
    pub(crate) fn held(&self) -> ConnectionCounts {
        self.0.held()
    }
}

impl Listener {
    /// Binds the address. Model versions that were read but not yet sent take at most so many bytes.
    ///
    /// # Errors
    /// If the address is unavailable.
    pub(crate) async fn bind(
        address: SocketAddr,
        entrance: Entrance,
        connection_limits: ConnectionLimits,
        unsent_max_bytes: usize,
    ) -> std::io::Result<Self> {
        let tcp = TcpListener::bind(address).await?;
        let pool = ConnectionPool::new(connection_limits, Unsent::new(Bounds::of(unsent_max_bytes)));
        Ok(Self { tcp, entrance, pool })
    }

    /// The address that was bound.
    ///
    /// # Errors
    /// If the operating system does not report it.
    pub(crate) fn address(&self) -> std::io::Result<SocketAddr> {
        self.tcp.local_addr()
    }

    /// An observer of the listener.
    pub(crate) fn observer(&self) -> PoolObserver {
        PoolObserver(self.pool.clone())
    }

    /// Serves until `shutdown` is cancelled; then accepts no more, and returns when all accepted requests are answered
    /// or the shutdown timeout has passed.
    pub(crate) async fn serve(self, app: Arc<App>, router: Router, shutdown: CancellationToken) {
        let Self { tcp, entrance, pool } = self;
        let patience = app.config.http.shutdown_timeout();
        let connections = TaskTracker::new();
        let state = Arc::new(ListenerState::new(entrance, app, router, pool, shutdown.clone()));
        loop {
            let accepted = tokio::select! {
                accepted = tcp.accept() => accepted,
                () = shutdown.cancelled() => break,
            };
            let (stream, address) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Most likely out of file descriptors: lets other connections end.
                    tracing::warn!(%error, "cannot accept a connection: {error}");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            let end = CancellationToken::new();
            match state.pool.arrive(address.ip(), &end) {
                Some(slot) => drop(connections.spawn(Arc::clone(&state).receive(stream, address, slot, end))),
                // Dropped before it costs anything.
                None => metrics::counter!("tributary_connections_refused_total", "kind" => "arriving").increment(1),
            }
        }
        drop(tcp);
        connections.close();
        if tokio::time::timeout(patience, connections.wait()).await.is_err() {
            tracing::warn!("some requests did not end in the time that a shutdown waits");
        }
    }
}

/// Shared state of all connections of a listener.
struct ListenerState {
    entrance: Entrance,
    app: Arc<App>,
    router: Router,
    pool: ConnectionPool,
    shutdown: CancellationToken,
    /// Time for the first bytes of a connection.
    first_bytes: Duration,
    of_participants: auto::Builder<TokioExecutor>,
    of_others: auto::Builder<TokioExecutor>,
    /// Bytes of requests and of answers, with their headers.
    received: Counter,
    sent: Counter,
}

impl ListenerState {
    fn new(
        entrance: Entrance,
        app: Arc<App>,
        router: Router,
        pool: ConnectionPool,
        shutdown: CancellationToken,
    ) -> Self {
        let header_timeout = app.config.http.header_timeout();
        let (first_bytes, of_participants) = match entrance {
            Entrance::Signed => (BALANCER_IDLE, builder(BALANCER_IDLE, STREAMS_MAX).http1_only()),
            Entrance::Tls(_) | Entrance::Health => (header_timeout, builder(header_timeout, STREAMS_MAX)),
        };
        let of_others = builder(header_timeout, STREAMS_MAX_OF_OTHERS);
        let received = metrics::counter!("tributary_received_bytes_total");
        let sent = metrics::counter!("tributary_sent_bytes_total");
        Self { entrance, app, router, pool, shutdown, first_bytes, of_participants, of_others, received, sent }
    }

    /// Serves one connection from start to end.
    async fn receive(self: Arc<Self>, stream: TcpStream, address: SocketAddr, slot: Slot, end: CancellationToken) {
        // Small answers must not wait for more data.
        let _ = stream.set_nodelay(true);
        let connection = Connection { address: address.ip(), peer: None };
        let acceptor = match &self.entrance {
            Entrance::Tls(acceptor) => acceptor,
            Entrance::Signed => {
                let guard = ConnectionGuard::begin_of_balancer(&self.pool, connection, slot, end);
                return self.serve(stream, guard).await;
            }
            Entrance::Health => {
                return self.serve(stream, ConnectionGuard::begin(&self.pool, connection, None, slot, end)).await;
            }
        };
        let shaken = tokio::select! {
            shaken = tokio::time::timeout(self.app.config.http.header_timeout(), acceptor.accept(stream)) => shaken,
            () = end.cancelled() => return,
        };
        match shaken {
            Ok(Ok(tls)) => {
                let leaf = tls.get_ref().1.peer_certificates().and_then(<[_]>::first);
                let connection = Connection { peer: leaf.and_then(Peer::from_certificate), ..connection };
                let member = tokio::select! {
                    member = self.find_member(connection.peer) => member,
                    () = end.cancelled() => return,
                };
                self.serve(tls, ConnectionGuard::begin(&self.pool, connection, member, slot, end)).await;
            }
            Ok(Err(error)) => {
                metrics::counter!("tributary_handshakes_refused_total").increment(1);
                tracing::debug!(%address, "handshake with {address} failed: {error}");
            }
            Err(_) => {}
        }
    }

    /// The participant with this valid certificate. If the look-up takes too long, the peer counts as a stranger until
    /// its first request.
    async fn find_member(&self, peer: Option<Peer>) -> Option<ParticipantId> {
        // Boxed, here and below, so that rarely used state does not enlarge every connection.
        let found =
            tokio::time::timeout(self.app.config.http.header_timeout(), Box::pin(member(&self.app, peer?))).await;
        found.ok()?.inspect_err(|error| tracing::debug!("a certificate is not a member's: {error:?}")).ok()
    }

    /// Resolves when the peer's time is up: soon for a stranger; for a participant when its certificate is no longer
    /// valid. If that cannot be determined, the connection stays.
    async fn overstayed(&self, guard: &ConnectionGuard) {
        loop {
            guard.unchecked(&self.app.config.http).await;
            let Some(peer) = guard.member() else {
                if guard.is_known() {
                    // An operator, or a balancer.
                    std::future::pending().await
                }
                return;
            };
            let found = Box::pin(member(&self.app, peer)).await;
            guard.note_check();
            if let Err(Error::Unauthenticated(_) | Error::Revoked | Error::Expired(_)) = found {
                return;
            }
        }
    }

    async fn serve(&self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, guard: ConnectionGuard) {
        let config = &self.app.config.http;
        let guard = Arc::new(guard);
        let service = hyper::service::service_fn(|request: http::Request<hyper::body::Incoming>| {
            let (guard, router) = (Arc::clone(&guard), self.router.clone());
            // Boxed, so that the handler's memory is freed while the answer waits to be read.
            Box::pin(
                async move { Ok::<_, std::convert::Infallible>(guard.answer(router, request.map(Body::new)).await) },
            )
        });
        let builder = if guard.is_known() { &self.of_participants } else { &self.of_others };
        let (received, sent) = (self.received.clone(), self.sent.clone());
        let stream = InspectWriter::new(stream, move |bytes: &[u8]| sent.increment(bytes.len() as u64));
        let stream = InspectReader::new(stream, move |bytes: &[u8]| received.increment(bytes.len() as u64));
        let stream = TokioIo::new(ReadDeadline::new(stream, self.first_bytes));
        let mut served = pin!(builder.serve_connection(stream, service));
        let mut overstayed = pin!(self.overstayed(&guard));
        let mut last_moment = pin!(tokio::time::sleep(Duration::ZERO));
        let (mut is_over, mut is_leaving, mut is_stopping) = (false, false, false);
        loop {
            tokio::select! {
                outcome = served.as_mut() => {
                    if let Err(error) = outcome {
                        tracing::debug!("a connection ended: {error}");
                    }
                    return;
                }
                () = guard.ended() => return,
                () = guard.stalled(config.unread_timeout()) => {
                    metrics::counter!("tributary_connections_unread_total").increment(1);
                    tracing::debug!("a connection is closed: its peer does not read");
                    return;
                }
                () = last_moment.as_mut(), if is_leaving => return,
                () = overstayed.as_mut(), if !is_over => {
                    is_over = true;
                    guard.leave();
                }
                () = guard.left(), if !is_leaving => {
                    is_leaving = true;
                    last_moment.as_mut().reset(tokio::time::Instant::now() + config.request_timeout());
                    served.as_mut().graceful_shutdown();
                }
                // The listener limits how long that may take.
                () = self.shutdown.cancelled(), if !is_stopping => {
                    is_stopping = true;
                    served.as_mut().graceful_shutdown();
                }
            }
        }
    }
}

fn builder(header_timeout: Duration, streams_max: u32) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(header_timeout);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(streams_max)
        .max_send_buf_size(PIECE)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE);
    builder
}
