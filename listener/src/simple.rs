//! A server whose peers are all of one kind: it limits their number and how long they may be idle.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use futures_util::future::{Either, select};
use http::Request;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;
use wire::Digest;

use crate::accept::accept as accept_one;
use crate::digest::sha256;
use crate::inspected::Inspected;
use crate::read_deadline::ReadDeadline;

/// Maximum number of connections; further ones wait.
const CONNECTIONS: usize = 4096;
/// Timeout of a handshake, of the first bytes after it, and of request headers.
const HEADERS: Duration = Duration::from_secs(10);
/// Idle timeout of a connection. HTTP/1.1 connections end after `HEADERS`.
const IDLE: Duration = Duration::from_secs(60);
/// Timeout of requests in progress and of closing connections at shutdown.
const GRACE: Duration = Duration::from_secs(10);

/// The peer of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// SHA-256 of its client certificate, if it presented one.
    pub certificate: Option<Digest>,
}

/// The handler of a listener's requests. It is a handle that is cloned for each connection.
pub trait Answers: Clone + Send + Sync + 'static {
    /// Answers a request of this peer.
    fn answer(self, request: Request<Incoming>, peer: Peer) -> impl Future<Output = Response> + Send + 'static;
}

impl Answers for Router {
    async fn answer(self, mut request: Request<Incoming>, peer: Peer) -> Response {
        request.extensions_mut().insert(peer);
        match self.oneshot(request.map(Body::new)).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }
}

/// Binds an address.
///
/// # Errors
/// The address is in use or not permitted.
pub async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(address).await
}

/// How connections are served: timeouts and request handler.
struct Connections<A> {
    tls: Option<TlsAcceptor>,
    answers: A,
    builder: auto::Builder<TokioExecutor>,
    /// Timeout of the first bytes of a connection.
    first_bytes: Duration,
    idle: Duration,
    /// Timeout of requests in progress at shutdown.
    grace: Duration,
    stop: CancellationToken,
}

/// Serves until `stop`, then waits for requests in progress.
pub async fn serve(listener: TcpListener, tls: Option<TlsAcceptor>, answers: impl Answers, stop: CancellationToken) {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADERS);
    builder.http2().timer(TokioTimer::new()).max_concurrent_streams(256).keep_alive_interval(Duration::from_secs(30));
    let connections = Connections { tls, answers, builder, first_bytes: HEADERS, idle: IDLE, grace: GRACE, stop };
    accept(listener, Arc::new(connections)).await;
}

async fn accept<A: Answers>(listener: TcpListener, connections: Arc<Connections<A>>) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let accepted = async {
            let slot = Arc::clone(&slots).acquire_owned().await;
            (slot, accept_one(&listener).await.0)
        };
        let Some((slot, stream)) = connections.stop.run_until_cancelled(accepted).await else { break };
        let connections = Arc::clone(&connections);
        tokio::spawn(async move {
            let _slot = slot;
            if let Err(error) = connections.receive(stream).await {
                tracing::debug!("a connection ended: {error}");
            }
        });
    }
    drop(listener);
    // All slots are free when all connections have ended.
    let all = u32::try_from(CONNECTIONS).unwrap_or(u32::MAX);
    let _ = tokio::time::timeout(connections.grace, slots.acquire_many(all)).await;
}

type Ended = Result<(), Box<dyn std::error::Error + Send + Sync>>;

impl<A: Answers> Connections<A> {
    async fn receive(&self, stream: TcpStream) -> Ended {
        // Small answers must not wait for more data.
        stream.set_nodelay(true)?;
        match &self.tls {
            None => self.answer(stream, Peer { certificate: None }).await,
            Some(acceptor) => {
                let late = |_| io::Error::new(io::ErrorKind::TimedOut, "the handshake took too long");
                let stream = tokio::time::timeout(HEADERS, acceptor.accept(stream)).await.map_err(late)??;
                let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
                let certificate = shown.map(|certificate| sha256(certificate));
                self.answer(stream, Peer { certificate }).await
            }
        }
    }

    /// Serves the requests of a connection until it ends, is idle, or the server stops.
    async fn answer(&self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, peer: Peer) -> Ended {
        let requests = Requests::new();
        let (counting, answers) = (Arc::clone(&requests), self.answers.clone());
        let service = hyper::service::service_fn(move |request: Request<Incoming>| {
            let (answer, counted) = (answers.clone().answer(request, peer), counting.begin());
            async move {
                let answer = answer.await;
                drop(counted);
                Ok::<_, Infallible>(answer)
            }
        });
        // hyper waits without a limit for the bytes that distinguish HTTP/2 from HTTP/1.1.
        let stream = TokioIo::new(Inspected::new(stream, ReadDeadline::new(self.first_bytes)));
        let mut served = pin!(self.builder.serve_connection(stream, service));
        // A token per connection: each request checks it, and a shared one would be a contended lock.
        let stop = self.stop.child_token();
        let ending = pin!(stop.run_until_cancelled(requests.idle(self.idle)));
        if let Either::Left((ended, _)) = select(served.as_mut(), ending).await {
            return ended;
        }
        served.as_mut().graceful_shutdown();
        // HTTP/2 sends GOAWAY, and its peer may never answer.
        tokio::time::timeout(self.grace, served).await.unwrap_or(Ok(()))
    }
}

/// The requests of a connection that are in progress, and the time when the last one ended.
struct Requests(Mutex<(usize, Instant)>);

impl Requests {
    fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new((0, Instant::now()))))
    }

    fn state(&self) -> MutexGuard<'_, (usize, Instant)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(self: &Arc<Self>) -> InProgress {
        self.state().0 += 1;
        InProgress(Arc::clone(self))
    }

    /// Returns when no request began or was in progress for this time. Requests do not wake it.
    async fn idle(&self, long: Duration) {
        loop {
            let (count, ended) = *self.state();
            let now = Instant::now();
            let over = if count > 0 { now + long } else { ended + long };
            if over <= now {
                return;
            }
            tokio::time::sleep_until(over).await;
        }
    }
}

/// A request in progress.
struct InProgress(Arc<Requests>);

impl Drop for InProgress {
    fn drop(&mut self) {
        let mut state = self.0.state();
        *state = (state.0 - 1, Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// The start of an HTTP/2 connection: the preface and empty settings.
    const HTTP2: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

    /// Whether a connection that sends only these bytes is closed within 25 seconds.
    async fn is_ended(says: &[u8], first_bytes: Duration, idle: Duration) -> bool {
        let listener = bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (builder, stop) = (auto::Builder::new(TokioExecutor::new()), CancellationToken::new());
        let connections = Connections {
            tls: None,
            answers: Router::new(),
            builder,
            first_bytes,
            idle,
            grace: idle.min(GRACE),
            stop: stop.clone(),
        };
        let _stop = stop.drop_guard();
        tokio::spawn(accept(listener, Arc::new(connections)));
        let mut peer = TcpStream::connect(address).await.unwrap();
        peer.write_all(says).await.unwrap();
        let mut answer = Vec::new();
        tokio::time::timeout(Duration::from_secs(25), peer.read_to_end(&mut answer)).await.is_ok()
    }

    #[tokio::test]
    async fn connections_that_ask_nothing_are_ended() {
        let (short, long) = (Duration::from_millis(50), Duration::from_secs(3600));
        assert!(is_ended(b"", short, long).await, "it never says what it speaks");
        assert!(is_ended(HTTP2, long, short).await, "it speaks HTTP/2, and never asks");
        assert!(is_ended(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n", long, short).await, "it asks once");
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_idle_after_its_last_request() {
        let (began, second) = (Instant::now(), Duration::from_secs(1));
        let requests = Requests::new();
        let watched = Arc::clone(&requests);
        let idle = tokio::spawn(async move { watched.idle(10 * second).await });
        for _ in 0..3 {
            tokio::time::sleep(9 * second).await;
            let request = requests.begin();
            tokio::time::sleep(100 * second).await;
            drop(request);
        }
        idle.await.unwrap();
        assert_eq!(began.elapsed(), 337 * second);
    }
}
