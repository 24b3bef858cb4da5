//! HTTPS: TLS 1.3 through rustls with the ring provider, HTTP/2 or 1.1. Either one pinned CA and the participant's certificate
//! in the handshake, or signed requests to a balancer that ends TLS ([`RequestSigner`]).
//!
//! Answers are bounded before they are read, and every request has a timeout. Proxy environment variables are ignored:
//! a participant only talks to its configured coordinator.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use reqwest::{Client, RequestBuilder};
use rustls::ClientConfig;
use rustls::RootCertStore;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls_platform_verifier::BuilderVerifierExt as _;
use url::{Position, Url};
use wire::participant::ModelRef;
use wire::{Attempt, TaskId, TraceContext, headers};

use super::contract::{self, ANSWER_TIMEOUT, HttpRequest, PROBLEM_NEEDS};
use super::traffic::Counter;
use super::{Download, Request, RequestSigner, Response, Traffic, Transport, TransportError};
use crate::clock::Clock;
use crate::identity::Identity;

/// For three round trips: TCP, TLS, and one lost packet.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// Of requests that may be sent to learn the coordinator's time, and then once more.
const SMALL_BYTES: usize = 64 << 10;

/// A connection to one coordinator.
pub struct HttpsTransport {
    server: Url,
    roots: Roots,
    /// Replaced with the certificate, unless requests are signed.
    client: RwLock<Client>,
    /// For a balancer that ends TLS.
    signer: Option<RequestSigner>,
    /// The attempt that is followed, and its trace.
    followed: RwLock<Option<(Attempt, TraceContext)>>,
    counter: Counter,
}

/// Who vouches for the certificate of a balancer that ends TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServerRoots {
    /// The authorities that this device trusts, as a browser does.
    Device,
    /// Only these, in PEM.
    Pem(String),
}

enum Roots {
    Device,
    Pinned(Arc<RootCertStore>),
}

impl HttpsTransport {
    /// Checks the address and the CA without connecting.
    ///
    /// # Errors
    /// [`TransportError::Protocol`] if the address is not `https://…` or the CA is not a certificate in PEM.
    pub fn new(server: &str, ca_pem: &str) -> Result<Self, TransportError> {
        Self::with(address(server)?, Roots::pinned(ca_pem)?, None)
    }

    /// To a coordinator behind a balancer that ends TLS: requests are signed, and no certificate is shown in the handshake.
    ///
    /// # Errors
    /// [`TransportError::Protocol`] if the address is not `https://…`, or the authorities cannot be used.
    pub fn signed(server: &str, roots: &ServerRoots, clock: Arc<dyn Clock>) -> Result<Self, TransportError> {
        let server = address(server)?;
        let roots = match roots {
            ServerRoots::Device => Roots::Device,
            ServerRoots::Pem(pem) => Roots::pinned(pem)?,
        };
        let signer = RequestSigner::new(&server[Position::BeforeHost..Position::AfterPort], clock);
        Self::with(server, roots, Some(signer))
    }

    fn with(server: Url, roots: Roots, signer: Option<RequestSigner>) -> Result<Self, TransportError> {
        let client = RwLock::new(client(&roots, None)?);
        Ok(Self { server, roots, client, signer, followed: RwLock::default(), counter: Counter::default() })
    }

    #[must_use]
    pub fn server(&self) -> &str {
        self.server.as_str()
    }

    /// Says to which trace a request belongs, if it is about the attempt that is followed.
    fn trace(&self, http: &mut http::Request<Bytes>, is_about: impl FnOnce(Attempt) -> bool) {
        let followed = *self.followed.read().unwrap_or_else(PoisonError::into_inner);
        let Some((_, context)) = followed.filter(|(place, _)| is_about(*place)) else { return };
        if let Ok(value) = context.to_string().parse() {
            http.headers_mut().insert(headers::TRACEPARENT, value);
        }
    }

    fn client(&self) -> Client {
        self.client.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sends a request and reads as much of the answer's body as is needed.
    async fn exchange(&self, request: &HttpRequest) -> Result<http::Response<Bytes>, TransportError> {
        let response = self.begin(&request.http, Some(request.timeout)).await?;
        let needs = request.needs(response.status());
        collect(response, needs, &self.counter).await
    }

    /// Sends a request and returns the head of its answer. One that was refused for its date is signed and sent once more; a large
    /// one waits until the time is known.
    /// `timeout` is for all of the exchange; without it, only the head must come in time.
    async fn begin(
        &self,
        http: &http::Request<Bytes>,
        timeout: Option<Duration>,
    ) -> Result<reqwest::Response, TransportError> {
        let is_vain = |signer: &&RequestSigner| http.body().len() > SMALL_BYTES && signer.lacks_time();
        if let Some(signer) = self.signer.as_ref().filter(is_vain) {
            let answer = self.send_once(&contract::health(), Some(ANSWER_TIMEOUT)).await?;
            signer.hear(answer.status(), answer.headers());
        }
        let answer = self.send_once(http, timeout).await?;
        let is_misdated = |signer: &RequestSigner| signer.hear(answer.status(), answer.headers());
        if self.signer.as_ref().is_some_and(is_misdated) { self.send_once(http, timeout).await } else { Ok(answer) }
    }

    async fn send_once(
        &self,
        http: &http::Request<Bytes>,
        timeout: Option<Duration>,
    ) -> Result<reqwest::Response, TransportError> {
        let request = self.request(http)?;
        let answer = match timeout {
            Some(timeout) => request.timeout(timeout).send().await.map_err(TransportError::unreachable),
            None => in_time(request.send()).await?.map_err(TransportError::unreachable),
        };
        answer.inspect(|answer| self.counter.head_received(answer.headers()))
    }

    fn request(&self, http: &http::Request<Bytes>) -> Result<RequestBuilder, TransportError> {
        let url = self.server.join(&http.uri().to_string()).map_err(|error| setup("the path", error))?;
        let http = match &self.signer {
            Some(signer) => signer.sign(http.clone())?,
            None => http.clone(),
        };
        let (parts, body) = http.into_parts();
        self.counter.sent(&parts.headers, url.as_str().len() + body.len());
        Ok(self.client().request(parts.method, url).headers(parts.headers).body(body))
    }
}

#[async_trait]
impl Transport for HttpsTransport {
    fn identify(&self, identity: &Identity) -> Result<(), TransportError> {
        if let Some(signer) = &self.signer {
            return signer.identify(identity);
        }
        let client = client(&self.roots, Some(identity))?;
        *self.client.write().unwrap_or_else(PoisonError::into_inner) = client;
        Ok(())
    }

    fn follow(&self, place: Attempt, context: TraceContext) {
        *self.followed.write().unwrap_or_else(PoisonError::into_inner) = Some((place, context));
    }

    fn traffic(&self) -> Traffic {
        self.counter.so_far()
    }

    async fn send(&self, request: &Request) -> Response {
        let place = request.place();
        let mut request = HttpRequest::of(request);
        self.trace(&mut request.http, |followed| Some(followed) == place);
        request.read(self.exchange(&request).await)
    }

    async fn fetch_model(&self, task: TaskId, model: &ModelRef, sink: &mut Download) -> Result<(), TransportError> {
        let mut request = contract::model(task, model, sink.bytes());
        self.trace(&mut request, |followed| followed.task == task);
        let mut response = self.begin(&request, None).await?;
        if !response.status().is_success() {
            if response.status() == http::StatusCode::RANGE_NOT_SATISFIABLE {
                sink.clear().map_err(TransportError::protocol)?;
            }
            return contract::checked(refusal(response, &self.counter).await?).map(drop);
        }
        contract::resume(response.status(), response.headers(), sink)?;
        sink.reserve(usize::try_from(model.bytes).unwrap_or(usize::MAX));
        while let Some(chunk) = in_time(response.chunk()).await?.map_err(TransportError::unreachable)? {
            if chunk.len() as u64 > model.bytes - sink.bytes() {
                sink.clear().map_err(TransportError::protocol)?;
                return Err(TransportError::protocol(format!("the model is longer than {} bytes", model.bytes)));
            }
            self.counter.received(chunk.len());
            sink.append(&chunk)?;
        }
        Ok(())
    }
}

fn address(server: &str) -> Result<Url, TransportError> {
    let server: Url = server.parse().map_err(|error| setup("the server's address", error))?;
    if server.scheme() != "https" || server.host_str().is_none() {
        return Err(TransportError::protocol(format!("the server's address must begin with https://, not {server}")));
    }
    Ok(server)
}

impl Roots {
    fn pinned(ca_pem: &str) -> Result<Self, TransportError> {
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

/// A client with TLS 1.3, the authorities of the server, and the participant's certificate, if any.
fn client(roots: &Roots, identity: Option<&Identity>) -> Result<Client, TransportError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| setup("TLS", error))?;
    let tls = match roots {
        Roots::Pinned(roots) => tls.with_root_certificates(Arc::clone(roots)),
        Roots::Device => tls.with_platform_verifier().map_err(|error| setup("what this device trusts", error))?,
    };
    let mut tls = match identity {
        None => tls.with_no_client_auth(),
        Some(identity) => {
            let chain = CertificateDer::pem_slice_iter(identity.certified.certificate_pem.as_bytes())
                .collect::<Result<Vec<_>, _>>()
                .map_err(|error| setup("the certificate", error))?;
            let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(identity.key.expose_pkcs8().to_vec()));
            tls.with_client_auth_cert(chain, key).map_err(|error| setup("the certificate", error))?
        }
    };
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Client::builder()
        .tls_backend_preconfigured(tls)
        .https_only(true)
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT_TIMEOUT)
        .user_agent(concat!("tributary-client-sdk/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|error| setup("the HTTP client", error))
}

fn setup(what: &str, error: impl std::fmt::Display) -> TransportError {
    TransportError::protocol(format!("{what} cannot be used: {error}"))
}

/// The first so many bytes of a body and what came with them, or all if there are fewer.
async fn collect(
    mut response: reqwest::Response,
    bytes: usize,
    counter: &Counter,
) -> Result<http::Response<Bytes>, TransportError> {
    let mut body = Vec::new();
    while body.len() < bytes {
        match response.chunk().await {
            Ok(Some(chunk)) => {
                counter.received(chunk.len());
                body.extend_from_slice(&chunk);
            }
            Ok(None) => break,
            // The status says enough.
            Err(_) if !response.status().is_success() => break,
            Err(error) => return Err(TransportError::unreachable(error)),
        }
    }
    Ok(http::Response::from(response).map(|_| body.into()))
}

/// The answer in the place of a model, which comes at once, too.
async fn refusal(response: reqwest::Response, counter: &Counter) -> Result<http::Response<Bytes>, TransportError> {
    in_time(collect(response, PROBLEM_NEEDS, counter)).await?
}

/// A piece of a model's transfer, or the answer that begins it.
async fn in_time<T>(piece: impl Future<Output = T>) -> Result<T, TransportError> {
    let late = |_| TransportError::unreachable(format!("nothing came for {} s", ANSWER_TIMEOUT.as_secs()));
    tokio::time::timeout(ANSWER_TIMEOUT, piece).await.map_err(late)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ca() -> String {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        rcgen::CertificateParams::new(vec![]).unwrap().self_signed(&key).unwrap().pem()
    }

    #[tokio::test(start_paused = true)]
    async fn an_error_whose_body_does_not_come_is_given_up() {
        let stuck = futures_util::stream::pending::<Result<Bytes, std::io::Error>>();
        let response = http::Response::builder().status(503).body(reqwest::Body::wrap_stream(stuck)).unwrap();
        let given_up = tokio::time::timeout(ANSWER_TIMEOUT * 2, refusal(response.into(), &Counter::default())).await;
        assert!(matches!(given_up, Ok(Err(TransportError::Unreachable(_)))), "{given_up:?}");
    }

    #[test]
    fn addresses_and_authorities_are_checked_at_once() {
        assert!(HttpsTransport::new("https://localhost:8443", &ca()).is_ok());
        let error = |server: &str, ca: &str| HttpsTransport::new(server, ca).map(|_| ()).unwrap_err().to_string();
        assert!(error("http://localhost", &ca()).contains("https://"));
        assert!(error("localhost:8443", &ca()).contains("https://"));
        assert!(error("https://localhost", "").contains("no certificate"));
        let bad = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert!(error("https://localhost", bad).contains("the CA cannot be used"));
    }
}
