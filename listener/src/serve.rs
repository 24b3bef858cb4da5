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

use crate::accept::accept;
use crate::connection::Connection;
use crate::inspected::Inspected;
use crate::members::Members;
use crate::peer::Peer;
use crate::pool::connection_limits::ConnectionLimits;
use crate::pool::connection_pool::{ConnectionCounts, ConnectionGuard, ConnectionPool};
use crate::pool::slots::Slot;
use crate::read_deadline::ReadDeadline;
use crate::strict_lines::StrictLines;
use crate::timeouts::Timeouts;
use crate::unsent::{Bounds, PIECE, Unsent};

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

/// How the peers of a listener say who they are.
pub enum Entrance {
    /// In the TLS handshake.
    Tls(TlsAcceptor),
    /// By signed requests, which a balancer passes on one after the other (HTTP/1.1) without TLS.
    Signed,
    /// Not at all: without TLS, for health checks.
    Health,
}

/// A bound socket that does not accept connections yet.
pub struct Listener {
    tcp: TcpListener,
    entrance: Entrance,
    pool: ConnectionPool,
    timeouts: Timeouts,
}

/// Observes a listener while it serves.
#[derive(Clone)]
pub struct PoolObserver(ConnectionPool);

impl PoolObserver {
    /// Current connections and their memory.
    #[must_use]
    pub fn held(&self) -> ConnectionCounts {
        self.0.held()
    }
}

impl Listener {
    /// Binds the address. Model versions that were read but not yet sent take at most so many bytes.
    ///
    /// # Errors
    /// If the address is unavailable.
    pub async fn bind(
        address: SocketAddr,
        entrance: Entrance,
        connection_limits: ConnectionLimits,
        unsent_max_bytes: usize,
        timeouts: Timeouts,
    ) -> std::io::Result<Self> {
        let tcp = TcpListener::bind(address).await?;
        let pool = ConnectionPool::new(connection_limits, Unsent::new(Bounds::of(unsent_max_bytes)));
        Ok(Self { tcp, entrance, pool, timeouts })
    }

    /// The address that was bound.
    ///
    /// # Errors
    /// If the operating system does not report it.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.tcp.local_addr()
    }

    /// An observer of the listener.
    #[must_use]
    pub fn observer(&self) -> PoolObserver {
        PoolObserver(self.pool.clone())
    }

    /// Serves until `shutdown` is cancelled; then accepts no more, and returns when all accepted requests are answered
    /// or the shutdown timeout has passed.
    pub async fn serve<M: Members>(self, members: Arc<M>, router: Router, shutdown: CancellationToken) {
        let Self { tcp, entrance, pool, timeouts } = self;
        let patience = timeouts.shutdown;
        let connections = TaskTracker::new();
        let state = Arc::new(ListenerState::new(entrance, members, router, pool, timeouts, shutdown.clone()));
        loop {
            let accepted = shutdown.run_until_cancelled(accept(&tcp)).await;
            let Some((stream, address)) = accepted else { break };
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
struct ListenerState<M> {
    entrance: Entrance,
    members: Arc<M>,
    router: Router,
    pool: ConnectionPool,
    timeouts: Timeouts,
    shutdown: CancellationToken,
    /// Time for the first bytes of a connection.
    first_bytes: Duration,
    of_participants: auto::Builder<TokioExecutor>,
    of_others: auto::Builder<TokioExecutor>,
    /// Bytes of requests and of answers, with their headers.
    received: Counter,
    sent: Counter,
}

impl<M: Members> ListenerState<M> {
    fn new(
        entrance: Entrance,
        members: Arc<M>,
        router: Router,
        pool: ConnectionPool,
        timeouts: Timeouts,
        shutdown: CancellationToken,
    ) -> Self {
        let header_timeout = timeouts.header;
        let (first_bytes, of_participants) = match entrance {
            Entrance::Signed => (BALANCER_IDLE, builder(BALANCER_IDLE, STREAMS_MAX).http1_only()),
            Entrance::Tls(_) | Entrance::Health => (header_timeout, builder(header_timeout, STREAMS_MAX)),
        };
        let of_others = builder(header_timeout, STREAMS_MAX_OF_OTHERS);
        let received = metrics::counter!("tributary_received_bytes_total");
        let sent = metrics::counter!("tributary_sent_bytes_total");
        Self {
            entrance,
            members,
            router,
            pool,
            timeouts,
            shutdown,
            first_bytes,
            of_participants,
            of_others,
            received,
            sent,
        }
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
                return self.serve(Inspected::new(stream, StrictLines::default()), guard).await;
            }
            Entrance::Health => {
                return self.serve(stream, ConnectionGuard::begin(&self.pool, connection, None, slot, end)).await;
            }
        };
        let shaken = tokio::select! {
            shaken = tokio::time::timeout(self.timeouts.header, acceptor.accept(stream)) => shaken,
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
        let found = tokio::time::timeout(self.timeouts.header, Box::pin(self.members.find(peer?))).await;
        found.ok()?.inspect_err(|error| tracing::debug!("a certificate is not a member's: {}", error.reason)).ok()
    }

    /// Resolves when the peer's time is up: soon for a stranger; for a participant when its certificate is no longer
    /// valid. If that cannot be determined, the connection stays.
    async fn overstayed(&self, guard: &ConnectionGuard) {
        loop {
            guard.unchecked(&self.timeouts).await;
            let Some(peer) = guard.member() else {
                if guard.is_known() {
                    // An operator, or a balancer.
                    std::future::pending().await
                }
                return;
            };
            let found = Box::pin(self.members.find(peer)).await;
            guard.note_check();
            if found.is_err_and(|error| error.is_certain) {
                return;
            }
        }
    }

    async fn serve(&self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, guard: ConnectionGuard) {
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
        let stream = TokioIo::new(Inspected::new(stream, ReadDeadline::new(self.first_bytes)));
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
                () = guard.stalled(self.timeouts.unread) => {
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
                    last_moment.as_mut().reset(tokio::time::Instant::now() + self.timeouts.request);
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
