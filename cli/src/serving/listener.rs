//! Connections: TLS 1.3 as the coordinator's, or in the clear where nobody else can listen.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use coordinator::http::ReadDeadline;
use futures_util::future::{Either, select};
use http::Request;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use recipe::digest::sha256;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;
use wire::Digest;

use crate::failure::{Exit, Failure, Outcome};

/// Connections at once; further ones wait.
const CONNECTIONS: usize = 4096;
/// Time for a handshake, for the first bytes after it, and for the headers of a request.
const HEADERS: Duration = Duration::from_secs(10);
/// How long a connection stays without a request. One of HTTP/1.1 ends by `HEADERS` before.
const IDLE: Duration = Duration::from_secs(60);
/// Time for requests in progress when it stops, and for the peer of a connection that is to end.
const GRACE: Duration = Duration::from_secs(10);

/// What is known of the other side of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    /// SHA-256 of its certificate of the authority for clients, if it has shown one.
    pub(super) certificate: Option<Digest>,
}

/// What answers the requests of a listener. Cloned for each: it is a handle.
pub(crate) trait Answers: Clone + Send + Sync + 'static {
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

/// Files of the listener's identity.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TlsFiles<'a> {
    pub(crate) certificate: &'a Path,
    pub(crate) key: &'a Path,
    /// Authority whose certificates let clients in.
    pub(crate) client_ca: Option<&'a Path>,
    /// Those of its certificates whose holders may roll back, too.
    pub(crate) operators: Option<&'a Path>,
}

fn unreadable(path: &Path) -> String {
    format!("cannot read {}", path.display())
}

/// The certificates in a PEM file: at least one.
pub(super) fn certificates(path: &Path) -> Outcome<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    let found: Vec<_> = read.map_err(Failure::because(Exit::Configuration, unreadable(path)))?;
    if found.is_empty() {
        let detail = format!("{} holds no certificate in PEM", path.display());
        return Err(Failure::new(Exit::Configuration, detail));
    }
    Ok(found)
}

/// TLS by these files.
pub(super) fn tls(files: TlsFiles<'_>) -> Outcome<TlsAcceptor> {
    let chain = certificates(files.certificate)?;
    let key = PrivateKeyDer::from_pem_file(files.key)
        .map_err(Failure::because(Exit::Configuration, unreadable(files.key)))?;
    let wrong =
        |error: &dyn std::fmt::Display| Failure::new(Exit::Configuration, format!("cannot set up TLS: {error}"));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| wrong(&error))?;
    let builder = match files.client_ca {
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(path)? {
                roots.add(certificate).map_err(|error| wrong(&error))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(verifier.allow_unauthenticated().build().map_err(|error| wrong(&error))?)
        }
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_single_cert(chain, key).map_err(|error| wrong(&error))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Listens on an address.
///
/// # Errors
/// [`Exit::Io`]: it is taken, or may not be used.
pub(crate) async fn bind(address: SocketAddr) -> Outcome<TcpListener> {
    TcpListener::bind(address).await.map_err(Failure::because(Exit::Io, format!("cannot listen on {address}")))
}

/// How connections are served: their limits of time, and what answers them.
struct Connections<A> {
    tls: Option<TlsAcceptor>,
    answers: A,
    builder: auto::Builder<TokioExecutor>,
    /// Time for the first bytes of a connection.
    first_bytes: Duration,
    idle: Duration,
    /// Time for what is in progress at the end.
    grace: Duration,
    stop: CancellationToken,
}

/// Serves until `stop`, then lets requests in progress end.
pub(crate) async fn serve(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    answers: impl Answers,
    stop: CancellationToken,
) {
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
            (slot, listener.accept().await)
        };
        let Some((slot, accepted)) = connections.stop.run_until_cancelled(accepted).await else { break };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!("a connection was not accepted: {error}");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let connections = Arc::clone(&connections);
        tokio::spawn(async move {
            let _slot = slot;
            if let Err(error) = connections.receive(stream).await {
                tracing::debug!("a connection ended: {error}");
            }
        });
    }
    drop(listener);
    // All slots are free once all connections are over.
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

    /// Answers the requests of a connection, until it ends, is idle, or all stops.
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
        // hyper waits without end for the bytes by which it tells HTTP/2 from HTTP/1.1.
        let stream = TokioIo::new(ReadDeadline::new(stream, self.first_bytes));
        let mut served = pin!(self.builder.serve_connection(stream, service));
        // A token of its own: each request looks at it, and one for all connections would be under one lock.
        let stop = self.stop.child_token();
        let ending = pin!(stop.run_until_cancelled(requests.idle(self.idle)));
        if let Either::Left((ended, _)) = select(served.as_mut(), ending).await {
            return ended;
        }
        served.as_mut().graceful_shutdown();
        // HTTP/2 says goodbye, and its peer may never answer.
        tokio::time::timeout(self.grace, served).await.unwrap_or(Ok(()))
    }
}

/// The requests of a connection that are in progress, and when the last one ended.
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

    /// Returns when no request began or was in progress for this long. Requests do not wake it: it looks when the time is over.
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

/// A request that is answered.
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

    /// What HTTP/2 begins with: the preface, and settings that say nothing.
    const HTTP2: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

    /// Whether a connection is ended within 25 seconds that says this and nothing else.
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
