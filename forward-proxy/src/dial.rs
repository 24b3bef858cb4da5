//! TCP connections to a server: direct ones, and tunnels through an HTTP forward proxy (`CONNECT`, RFC 9110, 9.3.6).

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::uri::Authority;
use http::{Request, Response, Uri, header};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls_platform_verifier::BuilderVerifierExt as _;
use tokio::net::TcpStream;
use tower_service::Service;

use crate::error::{BoxError, PROXY_TIMEOUT, ProxyError, Reason};
use crate::setting::ProxyServer;

/// Most bytes of the head of a proxy's response; hyper's minimum is 8 KiB.
const HEAD_MAX_BYTES: usize = 16 << 10;

/// A TCP connection, or one in TLS to a proxy.
pub type Stream = MaybeHttpsStream<TokioIo<TcpStream>>;
type Connecting = Pin<Box<dyn Future<Output = Result<Stream, BoxError>> + Send>>;

/// Connects to a server, or to the proxy before it. TLS with the server is the caller's.
#[derive(Clone)]
pub struct Dialer(Route);

#[derive(Clone)]
enum Route {
    Direct(HttpConnector),
    Through(ProxyServer, Hop),
}

/// Connects to a proxy.
#[derive(Clone)]
enum Hop {
    Http(HttpConnector),
    Https(HttpsConnector<HttpConnector>),
}

impl Dialer {
    /// Connects with `tcp`. The certificate of a proxy whose address begins with `https://` must come from an authority that
    /// this device trusts.
    ///
    /// # Errors
    /// [`rustls::Error`] if the device's authorities cannot be read.
    pub fn new(mut tcp: HttpConnector, proxy: Option<&ProxyServer>) -> Result<Self, rustls::Error> {
        tcp.enforce_http(false);
        Ok(Self(match proxy {
            None => Route::Direct(tcp),
            Some(proxy) => Route::Through(proxy.clone(), Hop::new(proxy, tcp)?),
        }))
    }
}

impl Hop {
    fn new(proxy: &ProxyServer, tcp: HttpConnector) -> Result<Self, rustls::Error> {
        if proxy.address().scheme_str() != Some("https") {
            return Ok(Self::Http(tcp));
        }
        let tls = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_platform_verifier()?
            .with_no_client_auth();
        let https = HttpsConnectorBuilder::new().with_tls_config(tls).https_only().enable_http1();
        Ok(Self::Https(https.wrap_connector(tcp)))
    }

    fn connect(&mut self, proxy: Uri) -> Connecting {
        match self {
            Self::Http(tcp) => plain(tcp, proxy),
            Self::Https(https) => Box::pin(https.call(proxy)),
        }
    }
}

fn plain(tcp: &mut HttpConnector, to: Uri) -> Connecting {
    let connecting = tcp.call(to);
    Box::pin(async move { Ok(MaybeHttpsStream::Http(connecting.await?)) })
}

impl Service<Uri> for Dialer {
    type Response = Stream;
    type Error = BoxError;
    type Future = Connecting;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        match &mut self.0 {
            Route::Direct(tcp) | Route::Through(_, Hop::Http(tcp)) => tcp.poll_ready(cx).map_err(Into::into),
            Route::Through(_, Hop::Https(https)) => https.poll_ready(cx),
        }
    }

    fn call(&mut self, server: Uri) -> Connecting {
        match &mut self.0 {
            Route::Direct(tcp) => plain(tcp, server),
            Route::Through(proxy, hop) => {
                let (proxy, connecting) = (proxy.clone(), hop.connect(proxy.address().clone()));
                Box::pin(async move {
                    let target = with_port(&server)?;
                    let tunnelled = tokio::time::timeout(PROXY_TIMEOUT, tunnel(&proxy, connecting, &target)).await;
                    let tunnelled = tunnelled.unwrap_or(Err(Reason::Silent));
                    tunnelled.map_err(|reason| failed(&proxy, target, reason).into())
                })
            }
        }
    }
}

pub(crate) fn failed(proxy: &ProxyServer, target: Authority, reason: Reason) -> ProxyError {
    ProxyError { proxy: proxy.to_string(), has_password: proxy.authorization().is_some(), target, reason }
}

/// Host and port of the server's address.
pub(crate) fn with_port(server: &Uri) -> Result<Authority, BoxError> {
    let (host, port) = (server.host().unwrap_or_default(), server.port_u16().unwrap_or(443));
    Ok(format!("{host}:{port}").parse()?)
}

/// Has the proxy connect to `target`.
async fn tunnel(proxy: &ProxyServer, connecting: Connecting, target: &Authority) -> Result<Stream, Reason> {
    let stream = connecting.await.map_err(Reason::Connect)?;
    let mut http = http1::Builder::new();
    let (mut sender, connection) = http.max_buf_size(HEAD_MAX_BYTES).handshake(stream).await?;
    let mut request = Request::connect(target.as_str()).header(header::HOST, target.as_str());
    if let Some(authorization) = proxy.authorization() {
        request = request.header(header::PROXY_AUTHORIZATION, authorization);
    }
    let request = request.body(Empty::<Bytes>::new()).map_err(|error| Reason::Connect(error.into()))?;
    let mut connection = pin!(connection.without_shutdown());
    let mut sent = pin!(sender.send_request(request));
    let mut ended = None;
    let response: Response<Incoming> = loop {
        tokio::select! {
            response = &mut sent => break response?,
            parts = &mut connection, if ended.is_none() => ended = Some(parts),
        }
    };
    if !response.status().is_success() {
        return Err(Reason::Status(response.status()));
    }
    let parts = match ended {
        Some(parts) => parts?,
        None => connection.await?,
    };
    // In TLS, the client sends first.
    if parts.read_buf.is_empty() { Ok(parts.io) } else { Err(Reason::Early) }
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;
    use crate::Proxy;

    fn error(proxy: &str, target: &str, reason: Reason) -> String {
        let server = Uri::from_static("https://fl.example.org");
        let proxy = proxy.parse::<Proxy>().unwrap().towards(&server).unwrap().unwrap();
        failed(&proxy, with_port(&target.parse().unwrap()).unwrap(), reason).report()
    }

    #[test]
    fn rejected_tunnels_name_proxy_and_status() {
        let (server, proxy, open) = ("https://fl.example.org", "http://a:secret@proxy:3128", "http://proxy:3128");
        for (proxy, status, expected) in [
            (open, 407, "the proxy http://proxy:3128 answered 407 Proxy Authentication Required; it requires a name"),
            (proxy, 407, "407 Proxy Authentication Required; it does not accept the name and the password"),
            (proxy, 403, "answered 403 Forbidden; its rules have to allow CONNECT to fl.example.org:443"),
            (proxy, 502, "answered 502 Bad Gateway; it did not reach fl.example.org:443"),
        ] {
            let said = error(proxy, server, Reason::Status(StatusCode::from_u16(status).unwrap()));
            assert!(said.contains(expected) && !said.contains("secret"), "{said}");
        }
        for server in ["https://localhost:8443", "https://127.0.0.1:8443", "https://[::1]:8443"] {
            assert!(error(open, server, Reason::Silent).contains("is this machine: exempt it with NO_PROXY="));
        }
        let refused = Reason::Connect(std::io::Error::from(std::io::ErrorKind::ConnectionRefused).into());
        let said = error(open, server, refused);
        assert!(
            said.ends_with("could not be reached: connection refused; is that the address of an HTTP proxy?"),
            "{said}"
        );
    }
}
