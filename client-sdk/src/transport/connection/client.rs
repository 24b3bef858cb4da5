//! The HTTP client below [`HttpsTransport`](crate::transport::HttpsTransport): hyper's with its pool of connections, over TLS 1.3,
//! without redirects and cookies.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use forward_proxy::{Dialer, ProxyServer, Stream};
use http::uri::{Authority, Scheme};
use http::{HeaderValue, Request, Response, Uri, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls_platform_verifier::BuilderVerifierExt as _;
use tower_service::Service;

use crate::identity::Identity;
use crate::transport::TransportError;

/// For three round trips: TCP, TLS, and one lost packet.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// An idle connection whose peer went away is noticed after a minute.
const KEEPALIVE: Duration = Duration::from_secs(15);
const KEEPALIVES_LOST: u32 = 3;
/// The peer is considered gone if sent data stays unacknowledged for this time.
#[cfg(any(target_os = "android", target_os = "linux"))]
const UNACKNOWLEDGED: Duration = Duration::from_secs(30);
/// Of a request that the server turned away unread.
const RETRIES: u32 = 2;
const USER_AGENT: &str = concat!("tributary-client-sdk/", env!("CARGO_PKG_VERSION"));

type BoxError = Box<dyn Error + Send + Sync>;

/// Authorities of the server's certificate.
pub(in crate::transport) enum Roots {
    /// The authorities that this device trusts.
    Device,
    Pinned(Arc<RootCertStore>),
}

impl Roots {
    pub(in crate::transport) fn pinned(ca_pem: &str) -> Result<Self, TransportError> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(ca_pem.as_bytes()) {
            let certificate = certificate.map_err(|error| setup("the CA", error))?;
            roots.add(certificate).map_err(|error| setup("the CA", error))?;
        }
        if roots.is_empty() {
            return Err(TransportError::protocol("the CA holds no certificate in PEM"));
        }
        Ok(Self::Pinned(Arc::new(roots)))
    }
}

/// Sends requests to one server; clones share its connections.
#[derive(Clone)]
pub(in crate::transport) struct Client {
    server: Authority,
    pool: legacy::Client<Connector, Full<Bytes>>,
}

impl Client {
    /// With TLS 1.3, the authorities of the server, and the participant's certificate, if any.
    pub(in crate::transport) fn new(
        server: Authority,
        roots: &Roots,
        identity: Option<&Identity>,
        proxy: Option<&ProxyServer>,
    ) -> Result<Self, TransportError> {
        let https = HttpsConnectorBuilder::new()
            .with_tls_config(tls(roots, identity)?)
            .https_only()
            .enable_all_versions()
            .wrap_connector(dialer(proxy)?);
        let pool = legacy::Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .build(Connector(https));
        Ok(Self { server, pool })
    }

    /// Sends a request whose address is a path, and returns the head of its answer.
    pub(in crate::transport) async fn send(&self, http: Request<Bytes>) -> Result<Response<Incoming>, TransportError> {
        let request = self.addressed(http)?;
        let mut retries = 0;
        loop {
            match self.pool.request(request.clone()).await {
                Err(error) if retries < RETRIES && is_unread(&error) => retries += 1,
                Err(error) => return Err(TransportError::unreachable(Failed { server: self.server.clone(), error })),
                Ok(answer) => return Ok(answer),
            }
        }
    }

    fn addressed(&self, http: Request<Bytes>) -> Result<Request<Full<Bytes>>, TransportError> {
        let (mut parts, body) = http.into_parts();
        let mut uri = parts.uri.into_parts();
        (uri.scheme, uri.authority) = (Some(Scheme::HTTPS), Some(self.server.clone()));
        parts.uri = Uri::from_parts(uri).map_err(|error| setup("the path", error))?;
        parts.headers.entry(header::ACCEPT).or_insert(HeaderValue::from_static("*/*"));
        parts.headers.insert(header::USER_AGENT, HeaderValue::from_static(USER_AGENT));
        Ok(Request::from_parts(parts, Full::new(body)))
    }
}

/// Connects to the server, or to the proxy before it.
fn dialer(proxy: Option<&ProxyServer>) -> Result<Dialer, TransportError> {
    let mut tcp = HttpConnector::new();
    tcp.set_nodelay(true);
    // Is divided among the addresses of the name.
    tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
    tcp.set_keepalive(Some(KEEPALIVE));
    tcp.set_keepalive_interval(Some(KEEPALIVE));
    tcp.set_keepalive_retries(Some(KEEPALIVES_LOST));
    #[cfg(any(target_os = "android", target_os = "linux"))]
    tcp.set_tcp_user_timeout(Some(UNACKNOWLEDGED));
    Dialer::new(tcp, proxy).map_err(|error| setup("what this device trusts", error))
}

fn tls(roots: &Roots, identity: Option<&Identity>) -> Result<ClientConfig, TransportError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| setup("TLS", error))?;
    let tls = match roots {
        Roots::Pinned(roots) => tls.with_root_certificates(Arc::clone(roots)),
        Roots::Device => tls.with_platform_verifier().map_err(|error| setup("what this device trusts", error))?,
    };
    let Some(identity) = identity else { return Ok(tls.with_no_client_auth()) };
    let chain = CertificateDer::pem_slice_iter(identity.certified.certificate_pem.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| setup("the certificate", error))?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(identity.key.expose_pkcs8().to_vec()));
    tls.with_client_auth_cert(chain, key).map_err(|error| setup("the certificate", error))
}

fn setup(what: &str, error: impl fmt::Display) -> TransportError {
    TransportError::protocol(format!("{what} cannot be used: {error}"))
}

/// Whether the server said over HTTP/2 that it has not read the request: it goes away, or has too many (RFC 9113, 6.8 and 8.7).
fn is_unread(error: &legacy::Error) -> bool {
    let mut next = error.source();
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<h2::Error>() {
            let leaves = error.is_go_away() && error.reason() == Some(h2::Reason::NO_ERROR);
            let refuses = error.is_reset() && error.reason() == Some(h2::Reason::REFUSED_STREAM);
            return error.is_remote() && (leaves || refuses);
        }
        next = error.source();
    }
    false
}

/// A request without an answer, and its destination.
#[derive(Debug)]
struct Failed {
    server: Authority,
    error: legacy::Error,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.error.is_connect() { "no connection to" } else { "no answer from" };
        write!(f, "{what} {}", self.server)
    }
}

impl Error for Failed {
    /// Skips `legacy::Error`, whose text would only repeat this message.
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.error.source()
    }
}

/// Connects in [`CONNECT_TIMEOUT`], with the handshake of TLS.
#[derive(Clone)]
struct Connector(HttpsConnector<Dialer>);

impl Service<Uri> for Connector {
    type Response = MaybeHttpsStream<Stream>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        let connected = self.0.call(server);
        Box::pin(async move {
            let late = |_| format!("nothing came for {} s", CONNECT_TIMEOUT.as_secs());
            tokio::time::timeout(CONNECT_TIMEOUT, connected).await.map_err(late)?
        })
    }
}
