//! The contract over any HTTP client: the encoding of requests, their signatures and repetitions, the bound on answers,
//! and the timeouts. The client itself, with TLS and connections, is a [`Carrier`]: the SDK's own, or an app's.
//!
//! Answers are bounded before they are read, and every request has a timeout.

use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use wire::participant::ModelRef;
use wire::{Attempt, TaskId, TraceContext, headers};

use super::contract::{self, ANSWER_TIMEOUT, HttpRequest, PROBLEM_NEEDS};
use super::traffic::Counter;
use super::{Download, Request, RequestSigner, Response, Traffic, Transport, TransportError};
use crate::identity::Identity;

/// Of requests that may be sent to learn the coordinator's time, and then once more.
const SMALL_BYTES: usize = 64 << 10;

/// The body of an answer, as it comes. Dropped, the rest is not wanted.
#[async_trait]
pub trait Pieces: Send {
    /// The next bytes; `None` at the end.
    async fn next(&mut self) -> Option<Result<Bytes, TransportError>>;
}

/// The answer to a request, whose body is still to come.
pub type HttpAnswer = http::Response<Box<dyn Pieces>>;

/// An HTTP client, with TLS and connections to one coordinator, without redirects and cookies.
#[async_trait]
pub trait Carrier: Send + Sync {
    /// Shows this identity in the handshake of TLS from now on. Not called where requests are signed.
    ///
    /// # Errors
    /// [`TransportError::Protocol`] if the certificate cannot be used.
    fn identify(&self, identity: &Identity) -> Result<(), TransportError>;

    /// Sends a request, whose URI is a path and a query, and returns the head of its answer. The future may be dropped at any time.
    async fn send(&self, request: http::Request<Bytes>) -> Result<HttpAnswer, TransportError>;
}

/// A transport over an HTTP client.
pub struct HttpTransport<C> {
    carrier: C,
    /// For a balancer that ends TLS.
    signer: Option<RequestSigner>,
    /// The attempt that is followed, and its trace.
    followed: RwLock<Option<(Attempt, TraceContext)>>,
    counter: Counter,
}

impl<C: Carrier> HttpTransport<C> {
    /// Over a client that shows the participant's certificate in the handshake.
    #[must_use]
    pub fn new(carrier: C) -> Self {
        Self { carrier, signer: None, followed: RwLock::default(), counter: Counter::default() }
    }

    /// Creates a transport to a coordinator behind a balancer that ends TLS: requests are signed, without a client certificate.
    #[must_use]
    pub fn signed(carrier: C, signer: RequestSigner) -> Self {
        Self { signer: Some(signer), ..Self::new(carrier) }
    }

    /// The HTTP client that carries the requests.
    #[must_use]
    pub fn carrier(&self) -> &C {
        &self.carrier
    }

    #[cfg(feature = "https")]
    pub(super) fn carrier_mut(&mut self) -> &mut C {
        &mut self.carrier
    }

    /// Adds the trace context to a request about the followed attempt.
    fn trace(&self, http: &mut http::Request<Bytes>, is_about: impl FnOnce(Attempt) -> bool) {
        let followed = *self.followed.read().unwrap_or_else(PoisonError::into_inner);
        let Some((_, context)) = followed.filter(|(place, _)| is_about(*place)) else { return };
        if let Ok(value) = context.to_string().parse() {
            http.headers_mut().insert(headers::TRACEPARENT, value);
        }
    }

    /// Sends a request and reads as much of the answer's body as is needed.
    async fn exchange(&self, request: &HttpRequest) -> Result<http::Response<Bytes>, TransportError> {
        let all = async {
            let answer = self.begin(&request.http).await?;
            let needs = request.needs(answer.status());
            collect(answer, needs, &self.counter).await
        };
        within(request.timeout, all).await?
    }

    /// Sends a request and returns the head of its answer. One that was refused for its date is signed and sent once more; a large
    /// one waits until the time is known.
    async fn begin(&self, http: &http::Request<Bytes>) -> Result<HttpAnswer, TransportError> {
        let is_vain = |signer: &&RequestSigner| http.body().len() > SMALL_BYTES && signer.lacks_time();
        if let Some(signer) = self.signer.as_ref().filter(is_vain) {
            let answer = within(ANSWER_TIMEOUT, self.send_once(&contract::health())).await??;
            signer.hear(answer.status(), answer.headers());
        }
        let answer = self.send_once(http).await?;
        let is_misdated = self.signer.as_ref().is_some_and(|signer| signer.hear(answer.status(), answer.headers()));
        if is_misdated { self.send_once(http).await } else { Ok(answer) }
    }

    async fn send_once(&self, http: &http::Request<Bytes>) -> Result<HttpAnswer, TransportError> {
        let http = match &self.signer {
            Some(signer) => signer.sign(http.clone())?,
            None => http.clone(),
        };
        let path = http.uri().path_and_query().map_or(0, |path| path.as_str().len());
        self.counter.sent(http.headers(), path + http.body().len());
        let answer = self.carrier.send(http).await;
        answer.inspect(|answer| self.counter.head_received(answer.headers()))
    }
}

#[async_trait]
impl<C: Carrier> Transport for HttpTransport<C> {
    fn identify(&self, identity: &Identity) -> Result<(), TransportError> {
        match &self.signer {
            Some(signer) => signer.identify(identity),
            None => self.carrier.identify(identity),
        }
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
        let mut answer = within(ANSWER_TIMEOUT, self.begin(&request)).await??;
        if !answer.status().is_success() {
            if answer.status() == http::StatusCode::RANGE_NOT_SATISFIABLE {
                sink.clear().map_err(TransportError::protocol)?;
            }
            return contract::checked(refusal(answer, &self.counter).await?).map(drop);
        }
        contract::resume(answer.status(), answer.headers(), sink)?;
        sink.reserve(usize::try_from(model.bytes).unwrap_or(usize::MAX));
        while let Some(piece) = within(ANSWER_TIMEOUT, answer.body_mut().next()).await? {
            let piece = piece?;
            if piece.len() as u64 > model.bytes - sink.bytes() {
                sink.clear().map_err(TransportError::protocol)?;
                return Err(TransportError::protocol(format!("the model is longer than {} bytes", model.bytes)));
            }
            self.counter.received(piece.len());
            sink.append(&piece)?;
        }
        Ok(())
    }
}

/// The first so many bytes of a body and the bytes that came with them, or all of a shorter one.
async fn collect(answer: HttpAnswer, bytes: usize, counter: &Counter) -> Result<http::Response<Bytes>, TransportError> {
    let (head, mut body) = answer.into_parts();
    let mut read = Vec::new();
    while read.len() < bytes {
        match body.next().await {
            Some(Ok(piece)) => {
                counter.received(piece.len());
                read.extend_from_slice(&piece);
            }
            None => break,
            // The status alone identifies the error.
            Some(Err(_)) if !head.status.is_success() => break,
            Some(Err(error)) => return Err(error),
        }
    }
    Ok(http::Response::from_parts(head, read.into()))
}

/// The answer in the place of a model, which comes at once, too.
async fn refusal(answer: HttpAnswer, counter: &Counter) -> Result<http::Response<Bytes>, TransportError> {
    within(ANSWER_TIMEOUT, collect(answer, PROBLEM_NEEDS, counter)).await?
}

/// Waits for `what` until this limit.
async fn within<T>(limit: Duration, what: impl Future<Output = T>) -> Result<T, TransportError> {
    let late = |_| TransportError::unreachable(format!("nothing came for {} s", limit.as_secs()));
    tokio::time::timeout(limit, what).await.map_err(late)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A body that stays pending.
    struct Stuck;

    #[async_trait]
    impl Pieces for Stuck {
        async fn next(&mut self) -> Option<Result<Bytes, TransportError>> {
            std::future::pending().await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_error_whose_body_does_not_come_is_given_up() {
        let stuck: Box<dyn Pieces> = Box::new(Stuck);
        let answer = http::Response::builder().status(503).body(stuck).unwrap();
        let given_up = tokio::time::timeout(ANSWER_TIMEOUT * 2, refusal(answer, &Counter::default())).await;
        assert!(matches!(given_up, Ok(Err(TransportError::Unreachable(_)))), "{given_up:?}");
    }
}
