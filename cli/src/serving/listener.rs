//! Connections: TLS 1.3 as the coordinator's, or in the clear where nobody else can listen.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::failure::{Exit, Failure, Outcome};

/// Connections at once; further ones wait.
const CONNECTIONS: usize = 4096;
/// Time for a handshake, and for the headers of a request.
const HEADERS: Duration = Duration::from_secs(10);
/// Time for requests in progress when it stops.
const GRACE: Duration = Duration::from_secs(10);

/// What is known of the other side of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    /// It has a certificate of the authority for clients.
    pub(super) certified: bool,
}

/// Files of the listener's identity.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TlsFiles<'a> {
    pub(crate) certificate: &'a Path,
    pub(crate) key: &'a Path,
    /// Authority whose certificates let clients in.
    pub(crate) client_ca: Option<&'a Path>,
}

/// TLS by these files.
pub(super) fn tls(files: TlsFiles<'_>) -> Outcome<TlsAcceptor> {
    let unreadable = |path: &Path| format!("cannot read {}", path.display());
    let certificates = |path: &Path| -> Outcome<Vec<CertificateDer<'static>>> {
        let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
        let found: Vec<_> = read.map_err(Failure::because(Exit::Configuration, unreadable(path)))?;
        if found.is_empty() {
            let detail = format!("{} holds no certificate in PEM", path.display());
            return Err(Failure::new(Exit::Configuration, detail));
        }
        Ok(found)
    };
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

/// Serves until `stop`, then lets requests in progress end.
pub(crate) async fn serve(listener: TcpListener, tls: Option<TlsAcceptor>, router: Router, stop: CancellationToken) {
    let (slots, graceful) = (Arc::new(Semaphore::new(CONNECTIONS)), Arc::new(GracefulShutdown::new()));
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADERS);
    builder.http2().timer(TokioTimer::new()).max_concurrent_streams(256).keep_alive_interval(Duration::from_secs(30));
    let builder = Arc::new(builder);
    loop {
        let accepted = async {
            let slot = Arc::clone(&slots).acquire_owned().await;
            (slot, listener.accept().await)
        };
        let (slot, stream) = tokio::select! {
            (slot, accepted) = accepted => match accepted {
                Ok((stream, _)) => (slot, stream),
                Err(error) => {
                    tracing::warn!("a connection was not accepted: {error}");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
            () = stop.cancelled() => break,
        };
        let (tls, router, builder, watcher) = (tls.clone(), router.clone(), Arc::clone(&builder), graceful.watcher());
        tokio::spawn(async move {
            let _slot = slot;
            if let Err(error) = receive(stream, tls, router, &builder, watcher).await {
                tracing::debug!("a connection ended: {error}");
            }
        });
    }
    drop(listener);
    if let Some(graceful) = Arc::into_inner(graceful) {
        let _ = tokio::time::timeout(GRACE, graceful.shutdown()).await;
    }
}

type Builder = auto::Builder<TokioExecutor>;
type Watcher = hyper_util::server::graceful::Watcher;

async fn receive(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    router: Router,
    builder: &Builder,
    watcher: Watcher,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    // Small answers must not wait for more data.
    stream.set_nodelay(true)?;
    match tls {
        None => answer(stream, Peer { certified: false }, router, builder, watcher).await,
        Some(acceptor) => {
            let late = |_| io::Error::new(io::ErrorKind::TimedOut, "the handshake took too long");
            let stream = tokio::time::timeout(HEADERS, acceptor.accept(stream)).await.map_err(late)??;
            let certified = stream.get_ref().1.peer_certificates().is_some_and(|chain| !chain.is_empty());
            answer(stream, Peer { certified }, router, builder, watcher).await
        }
    }
}

async fn answer(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: Peer,
    router: Router,
    builder: &Builder,
    watcher: Watcher,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let service = hyper::service::service_fn(move |mut request: http::Request<hyper::body::Incoming>| {
        request.extensions_mut().insert(peer);
        router.clone().oneshot(request.map(axum::body::Body::new))
    });
    watcher.watch(builder.serve_connection(TokioIo::new(stream), service).into_owned()).await
}
