//! The way from a participant to the coordinator's router without a socket: requests as the SDK's contract has them
//! ([`client_sdk::transport::contract`]), with the identity that the handshake would establish.
//!
//! Waiting polls are answered immediately; the driver of time holds them open ([`Exchange::open`]) and repeats them when the
//! coordinator would have called.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use client_sdk::participant::machine::ModelFile;
use client_sdk::transport::contract::{self, checked};
use client_sdk::transport::{HttpRequest, Request, Response, TransportError};
use coordinator::http::{Connection, VirtualTime};
use coordinator::identity::Peer;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, IF_NONE_MATCH};
use http::{Method, StatusCode};
use http_body_util::BodyExt as _;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tower::ServiceExt as _;
use wire::participant::ModelRef;
use wire::{TaskId, headers};

use crate::SimulationError;

const JSON: &str = "application/json";

type Answer = Result<http::Response<Bytes>, TransportError>;

pub struct Exchange {
    pub response: Response,
    /// Bytes of the request's body.
    pub up: u64,
    /// Bytes of the answer's body.
    pub down: u64,
    /// If the answer was only "nothing yet" and the participant waits: the request to repeat.
    pub open: Option<Request>,
}

/// The way to the coordinator.
pub struct Network {
    router: Router,
    /// An operator's token.
    token: String,
    /// The model that was fetched last. A version is immutable, so the coordinator authorizes the next request for it,
    /// and these bytes answer it, as a cache on the way would.
    cached: Mutex<Option<Arc<ModelFile>>>,
}

impl Network {
    /// To this coordinator, whose operator has this token.
    #[must_use]
    pub fn new(router: Router, token: String) -> Self {
        Self { router, token, cached: Mutex::default() }
    }

    /// How many bytes a request's body has, to tell how long it is on its way.
    #[must_use]
    pub fn size(request: &Request) -> u64 {
        let bytes = match request {
            Request::Upload(upload) => upload.body.len(),
            Request::Part(part) => part.body.len(),
            Request::Answer { body, .. } => body.len(),
            Request::Enroll(_)
            | Request::Renew(_)
            | Request::Withdraw
            | Request::CheckIn(_)
            | Request::Manifest(_)
            | Request::Announcement { .. }
            | Request::Evidence { .. }
            | Request::Abandon(_) => 0,
        };
        bytes as u64
    }

    /// Sends a participant's request.
    pub async fn ask(&self, peer: Option<Peer>, request: Request) -> Exchange {
        let waits = !request.wait().is_zero();
        // A check-in has its own duration (`KeepsTime`); to the coordinator, other polls do not wait.
        let is_announcement = matches!(request, Request::Announcement { .. });
        let asked = if is_announcement { waiting(request.clone(), Duration::ZERO) } else { request.clone() };
        let asked = HttpRequest::of(&asked);
        let up = asked.http.body().len() as u64;
        let answer = self.send(peer, asked.http.clone()).await.and_then(checked);
        let down = answer.as_ref().map_or(0, |answer| answer.body().len() as u64);
        let response = asked.read(answer);
        let open = (waits && response.is_nothing_yet()).then_some(request);
        Exchange { response, up, down, open }
    }

    /// Repeats a waiting poll.
    pub async fn ask_again(&self, peer: Option<Peer>, request: Request, left: Duration) -> Exchange {
        self.ask(peer, waiting(request, left)).await
    }

    /// A model version's file. Transfers here are always complete.
    ///
    /// # Errors
    /// [`TransportError`], as the coordinator refuses it.
    pub async fn fetch(
        &self,
        peer: Option<Peer>,
        task: TaskId,
        model: &ModelRef,
    ) -> Result<Arc<ModelFile>, TransportError> {
        let known = self.cached().clone().filter(|file| file.sha256() == model.sha256);
        let mut request = contract::model(task, model, 0);
        if known.is_some() {
            let tag = format!("\"{}\"", model.sha256);
            request.headers_mut().insert(IF_NONE_MATCH, tag.parse().map_err(TransportError::protocol)?);
        }
        let answer = self.send(peer, request).await?;
        if let Some(known) = known.filter(|_| answer.status() == StatusCode::NOT_MODIFIED) {
            return Ok(known);
        }
        let file = Arc::new(ModelFile::new(checked(answer)?.into_body()));
        *self.cached() = Some(Arc::clone(&file));
        Ok(file)
    }

    fn cached(&self) -> std::sync::MutexGuard<'_, Option<Arc<ModelFile>>> {
        self.cached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn send(&self, peer: Option<Peer>, request: http::Request<Bytes>) -> Answer {
        let length = request.body().len();
        let mut request = request.map(Body::from);
        if length > 0 {
            request.headers_mut().insert(CONTENT_LENGTH, length.into());
        }
        request.extensions_mut().insert(Connection { peer, ..Connection::default() });
        request.extensions_mut().insert(VirtualTime);
        let Ok(response) = self.router.clone().oneshot(request).await;
        let (parts, body) = response.into_parts();
        let body = body.collect().await.map_err(TransportError::unreachable)?.to_bytes();
        Ok(http::Response::from_parts(parts, body))
    }

    /// Reads a view as an operator; `None` if it does not exist.
    ///
    /// # Errors
    /// [`SimulationError::Refused`] or [`SimulationError::Coordinator`].
    pub async fn look<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>, SimulationError> {
        match self.operate(Method::GET, path, JSON, Bytes::new()).await {
            Ok(answer) => read(&answer).map(Some),
            Err(TransportError::Problem { problem, .. }) if problem.status == 404 => Ok(None),
            Err(error) => Err(refused(error)),
        }
    }

    /// Fetches bytes as an operator.
    ///
    /// # Errors
    /// [`SimulationError::Refused`] or [`SimulationError::Coordinator`].
    pub async fn download(&self, path: &str) -> Result<Bytes, SimulationError> {
        self.operate(Method::GET, path, JSON, Bytes::new()).await.map(http::Response::into_body).map_err(refused)
    }

    /// Makes something as an operator.
    ///
    /// # Errors
    /// [`SimulationError::Refused`] or [`SimulationError::Coordinator`].
    pub async fn make<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, SimulationError> {
        self.send_json(Method::POST, path, body).await
    }

    /// Puts something in its place as an operator.
    ///
    /// # Errors
    /// [`SimulationError::Refused`] or [`SimulationError::Coordinator`].
    pub async fn put<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, SimulationError> {
        self.send_json(Method::PUT, path, body).await
    }

    /// Puts bytes in their place as an operator.
    ///
    /// # Errors
    /// [`SimulationError::Refused`] or [`SimulationError::Coordinator`].
    pub async fn put_bytes(&self, path: &str, bytes: Bytes) -> Result<(), SimulationError> {
        self.operate(Method::PUT, path, headers::MEDIA_OCTETS, bytes).await.map(drop).map_err(refused)
    }

    async fn send_json<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, SimulationError> {
        let body = serde_json::to_vec(body).map_err(|error| SimulationError::Coordinator(error.to_string()))?;
        read(&self.operate(method, path, JSON, body.into()).await.map_err(refused)?)
    }

    async fn operate(&self, method: Method, path: &str, media: &str, body: Bytes) -> Answer {
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header(headers::PROTOCOL, headers::PROTOCOL_VERSION)
            .header(AUTHORIZATION, format!("Bearer {}", self.token))
            .header(CONTENT_TYPE, media)
            .body(body);
        checked(self.send(None, request.map_err(TransportError::protocol)?).await?)
    }
}

/// A poll that waits for so long.
fn waiting(mut request: Request, time: Duration) -> Request {
    if let Request::CheckIn(request) = &mut request {
        request.wait_ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    } else if let Request::Announcement { wait, .. } = &mut request {
        *wait = time;
    }
    request
}

fn read<T: DeserializeOwned>(answer: &http::Response<Bytes>) -> Result<T, SimulationError> {
    serde_json::from_slice(answer.body()).map_err(|error| refused(TransportError::protocol(error)))
}

/// The coordinator's rejection of the simulation's operator, as an error of the simulation.
fn refused(error: TransportError) -> SimulationError {
    match error {
        TransportError::Problem { problem, .. } => {
            let errors = problem.errors.iter().map(|error| format!("\n{}: {}", error.field, error.detail));
            SimulationError::Refused(format!("{problem}{}", errors.collect::<String>()))
        }
        error => SimulationError::Coordinator(error.to_string()),
    }
}
