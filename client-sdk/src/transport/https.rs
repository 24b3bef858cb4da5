//! HTTPS: TLS 1.3 through rustls with the ring provider, HTTP/2 or 1.1. Either one pinned CA and the participant's certificate
//! in the handshake, or signed requests to a balancer that ends TLS ([`RequestSigner`]).
//!
//! Answers are bounded before they are read, and every request has a timeout. Proxy environment variables are ignored:
//! a participant only talks to its configured coordinator.

use std::error::Error;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::uri::Authority;
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, Incoming};
use wire::participant::ModelRef;
use wire::{Attempt, TaskId, TraceContext, headers};

use super::client::{Client, Roots, authority};
use super::contract::{self, ANSWER_TIMEOUT, HttpRequest, PROBLEM_NEEDS};
use super::traffic::Counter;
use super::{Download, Request, RequestSigner, Response, Traffic, Transport, TransportError};
use crate::clock::Clock;
use crate::identity::Identity;

/// Of requests that may be sent to learn the coordinator's time, and then once more.
const SMALL_BYTES: usize = 64 << 10;

/// A connection to one coordinator.
pub struct HttpsTransport {
    server: Authority,
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

impl HttpsTransport {
    /// Checks the address and the CA without connecting.
    ///
    /// # Errors
    /// [`TransportError::Protocol`] if the address is not `https://…` or the CA is not a certificate in PEM.
    pub fn new(server: &str, ca_pem: &str) -> Result<Self, TransportError> {
        Self::with(authority(server)?, Roots::pinned(ca_pem)?, None)
    }

    /// To a coordinator behind a balancer that ends TLS: requests are signed, and no certificate is shown in the handshake.
    ///
    /// # Errors
    /// [`TransportError::Protocol`] if the address is not `https://…`, or the authorities cannot be used.
    pub fn signed(server: &str, roots: &ServerRoots, clock: Arc<dyn Clock>) -> Result<Self, TransportError> {
        let server = authority(server)?;
        let roots = match roots {
            ServerRoots::Device => Roots::Device,
            ServerRoots::Pem(pem) => Roots::pinned(pem)?,
        };
        let signer = RequestSigner::new(server.as_str(), clock);
        Self::with(server, roots, Some(signer))
    }

    fn with(server: Authority, roots: Roots, signer: Option<RequestSigner>) -> Result<Self, TransportError> {
        let client = RwLock::new(Client::new(server.clone(), &roots, None)?);
        Ok(Self { server, roots, client, signer, followed: RwLock::default(), counter: Counter::default() })
    }

    /// Host and port of the coordinator, without the port if it is 443.
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
        let all = async {
            let response = self.begin(&request.http).await?;
            let needs = request.needs(response.status());
            collect(response, needs, &self.counter).await
        };
        within(request.timeout, all).await?
    }

    /// Sends a request and returns the head of its answer. One that was refused for its date is signed and sent once more; a large
    /// one waits until the time is known.
    async fn begin(&self, http: &http::Request<Bytes>) -> Result<http::Response<Incoming>, TransportError> {
        let is_vain = |signer: &&RequestSigner| http.body().len() > SMALL_BYTES && signer.lacks_time();
        if let Some(signer) = self.signer.as_ref().filter(is_vain) {
            let answer = within(ANSWER_TIMEOUT, self.send_once(&contract::health())).await??;
            signer.hear(answer.status(), answer.headers());
        }
        let answer = self.send_once(http).await?;
        let is_misdated = |signer: &RequestSigner| signer.hear(answer.status(), answer.headers());
        if self.signer.as_ref().is_some_and(is_misdated) { self.send_once(http).await } else { Ok(answer) }
    }

    async fn send_once(&self, http: &http::Request<Bytes>) -> Result<http::Response<Incoming>, TransportError> {
        let http = match &self.signer {
            Some(signer) => signer.sign(http.clone())?,
            None => http.clone(),
        };
        let path = http.uri().path_and_query().map_or(0, |path| path.as_str().len());
        self.counter.sent(http.headers(), path + http.body().len());
        let answer = self.client().send(http).await;
        answer.inspect(|answer| self.counter.head_received(answer.headers()))
    }
}

#[async_trait]
impl Transport for HttpsTransport {
    fn identify(&self, identity: &Identity) -> Result<(), TransportError> {
        if let Some(signer) = &self.signer {
            return signer.identify(identity);
        }
        let client = Client::new(self.server.clone(), &self.roots, Some(identity))?;
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
        let mut response = within(ANSWER_TIMEOUT, self.begin(&request)).await??;
        if !response.status().is_success() {
            if response.status() == http::StatusCode::RANGE_NOT_SATISFIABLE {
                sink.clear().map_err(TransportError::protocol)?;
            }
            return contract::checked(refusal(response, &self.counter).await?).map(drop);
        }
        contract::resume(response.status(), response.headers(), sink)?;
        sink.reserve(usize::try_from(model.bytes).unwrap_or(usize::MAX));
        while let Some(chunk) = within(ANSWER_TIMEOUT, chunk(response.body_mut())).await? {
            let chunk = chunk.map_err(TransportError::unreachable)?;
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

/// The first so many bytes of a body and what came with them, or all if there are fewer.
async fn collect<B>(
    response: http::Response<B>,
    bytes: usize,
    counter: &Counter,
) -> Result<http::Response<Bytes>, TransportError>
where
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Unpin,
{
    let (head, mut body) = response.into_parts();
    let mut read = Vec::new();
    while read.len() < bytes {
        match chunk(&mut body).await {
            Some(Ok(chunk)) => {
                counter.received(chunk.len());
                read.extend_from_slice(&chunk);
            }
            None => break,
            // The status says enough.
            Some(Err(_)) if !head.status.is_success() => break,
            Some(Err(error)) => return Err(TransportError::unreachable(error)),
        }
    }
    Ok(http::Response::from_parts(head, read.into()))
}

/// The next bytes of a body; none at its end.
async fn chunk<B: Body<Data = Bytes> + Unpin>(body: &mut B) -> Option<Result<Bytes, B::Error>> {
    loop {
        match body.frame().await?.map(Frame::into_data) {
            Ok(Ok(data)) => return Some(Ok(data)),
            // Trailers say nothing to a participant.
            Ok(Err(_)) => {}
            Err(error) => return Some(Err(error)),
        }
    }
}

/// The answer in the place of a model, which comes at once, too.
async fn refusal<B>(response: http::Response<B>, counter: &Counter) -> Result<http::Response<Bytes>, TransportError>
where
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Unpin,
{
    within(ANSWER_TIMEOUT, collect(response, PROBLEM_NEEDS, counter)).await?
}

/// What has to come in this time.
async fn within<T>(limit: Duration, what: impl Future<Output = T>) -> Result<T, TransportError> {
    let late = |_| TransportError::unreachable(format!("nothing came for {} s", limit.as_secs()));
    tokio::time::timeout(limit, what).await.map_err(late)
}

#[cfg(test)]
mod tests {
    use http_body_util::StreamBody;

    use super::*;

    fn ca() -> String {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        rcgen::CertificateParams::new(vec![]).unwrap().self_signed(&key).unwrap().pem()
    }

    #[tokio::test(start_paused = true)]
    async fn an_error_whose_body_does_not_come_is_given_up() {
        let stuck = StreamBody::new(futures_util::stream::pending::<Result<Frame<Bytes>, std::io::Error>>());
        let response = http::Response::builder().status(503).body(stuck).unwrap();
        let given_up = tokio::time::timeout(ANSWER_TIMEOUT * 2, refusal(response, &Counter::default())).await;
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
