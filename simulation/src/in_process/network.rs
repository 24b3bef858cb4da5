//! From a participant's wishes to the coordinator's routes and back, without a socket: the requests that
//! `client_sdk::transport::https` would send, handed to the router, with the identity that the handshake would establish.
//!
//! Polls that wait are answered at once; whoever drives time holds them open ([`Exchange::open`]) and asks again when the
//! coordinator would have called.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use client_sdk::participant::machine::{Input, ModelFile, Request as Wish};
use client_sdk::transport::TransportError;
use coordinator::http::{Connection, VirtualTime};
use coordinator::identity::Peer;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, IF_NONE_MATCH, RETRY_AFTER};
use http::request::Builder;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tower::ServiceExt as _;
use wire::participant::{AbandonRequest, Announcement, CheckInReply, CheckInRequest, ModelRef};
use wire::problem::Problem;
use wire::{Attempt, ParticipantId, TaskId, base64, headers, route};

use crate::SimulationError;

/// What is asked again while a poll is open.
#[derive(Clone)]
pub enum Question {
    /// Is there work?
    CheckIn(CheckInRequest),
    /// Has the session come so far?
    Announcement {
        /// What is waited for.
        what: Announcement,
        place: Attempt,
        participant: ParticipantId,
    },
}

impl Question {
    /// What a request asks and how long it waits for the answer, if it is one that waits.
    fn of(wish: &Wish) -> Option<(Self, Duration)> {
        match wish {
            Wish::CheckIn(request) => Some((Self::CheckIn(request.clone()), Duration::from_millis(request.wait_ms))),
            Wish::Announcement { what, place, participant, wait } => {
                Some((Self::Announcement { what: *what, place: *place, participant: *participant }, *wait))
            }
            _ => None,
        }
    }

    /// The request that asks it and waits so long.
    fn wish(self, wait: Duration) -> Wish {
        match self {
            Self::CheckIn(request) => Wish::CheckIn(CheckInRequest { wait_ms: millis(wait), ..request }),
            Self::Announcement { what, place, participant } => Wish::Announcement { what, place, participant, wait },
        }
    }
}

/// What came back.
pub struct Exchange {
    pub input: Input,
    /// Bytes of the request's body.
    pub up: u64,
    /// Bytes of the answer's body.
    pub down: u64,
    /// If the answer was only "nothing yet" and the participant waits: what to ask again, and for how long.
    pub open: Option<(Question, Duration)>,
}

/// The way to the coordinator.
pub struct Network {
    router: Router,
    /// An operator's token.
    token: String,
    /// The model that was fetched last. A version never changes, so whoever fetches it next is let in by the coordinator
    /// and given these bytes, as a cache on the way would.
    cached: Mutex<Option<Arc<ModelFile>>>,
}

/// What the coordinator said, or why there is no answer.
type Response = Result<Answer, TransportError>;

/// An answer of the coordinator.
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

/// A request, the bytes of its body, and how its answer is read.
struct Outgoing {
    request: http::Result<Request<Body>>,
    up: u64,
    read: fn(Response) -> Input,
}

impl Network {
    /// To this coordinator, whose operator has this token.
    #[must_use]
    pub fn new(router: Router, token: String) -> Self {
        Self { router, token, cached: Mutex::default() }
    }

    /// How many bytes a request's body has, to tell how long it is on its way.
    #[must_use]
    pub fn size(wish: &Wish) -> u64 {
        let bytes = match wish {
            Wish::Upload(upload) => upload.body.len(),
            Wish::Answer { body, .. } => body.len(),
            _ => 0,
        };
        bytes as u64
    }

    /// Asks for a participant.
    pub async fn ask(&self, peer: Option<Peer>, wish: Wish) -> Exchange {
        let question = Question::of(&wish);
        let Outgoing { request, up, read } = outgoing(wish);
        let answer = self.send(peer, request).await.and_then(check);
        let down = answer.as_ref().map_or(0, |answer| answer.body.len() as u64);
        let input = read(answer);
        let is_early =
            matches!(input, Input::CheckedIn(Ok(CheckInReply::ComeBack { .. })) | Input::Announced(Ok(None)));
        let open = question.filter(|(_, wait)| is_early && !wait.is_zero());
        Exchange { input, up, down, open }
    }

    /// Asks once more what a poll waits for.
    pub async fn ask_again(&self, peer: Option<Peer>, question: Question, left: Duration) -> Exchange {
        self.ask(peer, question.wish(left)).await
    }

    /// A model version's file. Nothing cuts a transfer off here, so there is never a part to go on behind.
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
        let mut request = builder(Method::GET, &route::model_parameters(task, model.version))
            .header(ACCEPT, headers::MEDIA_SAFETENSORS);
        if known.is_some() {
            request = request.header(IF_NONE_MATCH, format!("\"{}\"", model.sha256));
        }
        let answer = self.send(peer, request.body(Body::empty())).await?;
        if let Some(known) = known.filter(|_| answer.status == StatusCode::NOT_MODIFIED) {
            return Ok(known);
        }
        let file = Arc::new(ModelFile::new(check(answer)?.body));
        *self.cached() = Some(Arc::clone(&file));
        Ok(file)
    }

    fn cached(&self) -> std::sync::MutexGuard<'_, Option<Arc<ModelFile>>> {
        self.cached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn send(&self, peer: Option<Peer>, request: http::Result<Request<Body>>) -> Response {
        let mut request = request.map_err(TransportError::protocol)?;
        request.extensions_mut().insert(Connection { peer, ..Connection::default() });
        let response = match self.router.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        let (parts, body) = response.into_parts();
        let body = body.collect().await.map_err(TransportError::unreachable)?.to_bytes();
        Ok(Answer { status: parts.status, headers: parts.headers, body })
    }

    /// Looks at something as an operator; none if it is not there.
    ///
    /// # Errors
    /// [`SimulationError::Refused`] or [`SimulationError::Coordinator`].
    pub async fn look<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>, SimulationError> {
        match self.operate(Method::GET, path, Body::empty()).await {
            Ok(answer) => read(Ok(answer)).map(Some).map_err(refused),
            Err(TransportError::Problem { problem, .. }) if problem.status == 404 => Ok(None),
            Err(error) => Err(refused(error)),
        }
    }

    /// Fetches bytes as an operator.
    ///
    /// # Errors
    /// [`SimulationError::Refused`] or [`SimulationError::Coordinator`].
    pub async fn download(&self, path: &str) -> Result<Bytes, SimulationError> {
        self.operate(Method::GET, path, Body::empty()).await.map(|answer| answer.body).map_err(refused)
    }

    /// Makes something as an operator.
    ///
    /// # Errors
    /// [`SimulationError::Refused`] or [`SimulationError::Coordinator`].
    pub async fn make<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, SimulationError> {
        read(self.operate(Method::POST, path, json(body).into()).await).map_err(refused)
    }

    async fn operate(&self, method: Method, path: &str, body: Body) -> Response {
        let request = builder(method, path)
            .header(AUTHORIZATION, format!("Bearer {}", self.token))
            .header(CONTENT_TYPE, "application/json")
            .body(body);
        self.send(None, request).await.and_then(check)
    }
}

/// The request that says this.
fn outgoing(wish: Wish) -> Outgoing {
    match wish {
        Wish::Enroll(request) => post(route::ENROLL, &request, |answer| Input::Enrolled(read(answer))),
        Wish::Renew(request) => post(route::RENEW, &request, |answer| Input::Renewed(read(answer))),
        Wish::CheckIn(request) => {
            let Outgoing { request, up, read } =
                post(route::CHECK_IN, &request, |answer| Input::CheckedIn(read(answer)));
            let request = request.map(|mut request| {
                request.extensions_mut().insert(VirtualTime);
                request
            });
            Outgoing { request, up, read }
        }
        Wish::Announcement { what, place, participant, .. } => {
            let path = route::announcement(what, place, participant, 0);
            get(&path, |answer| Input::Announced(answer.map(if_any)))
        }
        Wish::Evidence { place, dealer } => {
            let path = route::evidence(place, dealer);
            get(&path, |answer| Input::Evidenced(answer.map(|answer| answer.body)))
        }
        Wish::AbortStatements { place } => {
            let path = route::abort_statements(place);
            get(&path, |answer| Input::Announced(answer.map(if_any)))
        }
        Wish::Upload(upload) => {
            let path = route::masked_input(upload.place.task, upload.place.round, upload.participant);
            let mut request = put(&path, headers::MEDIA_MASKED_INPUT, upload.place, &upload.body)
                .header(headers::CONTENT_SHA256, upload.sha256.to_string());
            if let Some(signed) = &upload.signed {
                request = request.header(headers::SIGNED_INPUT, base64::encode(signed));
            }
            with_body(request, upload.body, |answer| Input::Uploaded(read(answer)))
        }
        Wish::Answer { what, place, participant, body } => {
            let path = route::answer(what, place.task, place.round, participant);
            let request = put(&path, headers::MEDIA_SECURE_AGG, place, &body);
            with_body(request, body, |answer| Input::Answered(answer.map(drop)))
        }
        Wish::AbortStatement { place, participant, body } => {
            let path = route::abort_statement(place.task, place.round, participant);
            let request = put(&path, headers::MEDIA_SECURE_AGG, place, &body);
            with_body(request, body, |answer| Input::Answered(answer.map(drop)))
        }
        Wish::Abandon(abandonment) => {
            let place = abandonment.place;
            let path = route::abandon(place.task, place.round, abandonment.participant);
            let body =
                AbandonRequest { attempt: place.attempt, reason: abandonment.reason, refusal: abandonment.refusal };
            post(&path, &body, |answer| Input::Abandoned(answer.map(drop)))
        }
    }
}

fn builder(method: Method, path: &str) -> Builder {
    Request::builder().method(method).uri(path).header(headers::PROTOCOL, headers::PROTOCOL_VERSION)
}

fn get(path: &str, read: fn(Response) -> Input) -> Outgoing {
    with_body(builder(Method::GET, path).header(ACCEPT, headers::MEDIA_SECURE_AGG), Bytes::new(), read)
}

fn post(path: &str, body: &impl Serialize, read: fn(Response) -> Input) -> Outgoing {
    with_body(builder(Method::POST, path).header(CONTENT_TYPE, "application/json"), json(body), read)
}

/// What is handed in for a place; its body is still to come.
fn put(path: &str, media: &str, place: Attempt, body: &Bytes) -> Builder {
    builder(Method::PUT, path)
        .header(CONTENT_TYPE, media)
        .header(CONTENT_LENGTH, body.len())
        .header(headers::ATTEMPT, place.attempt)
}

fn with_body(request: Builder, body: Bytes, read: fn(Response) -> Input) -> Outgoing {
    Outgoing { up: body.len() as u64, request: request.body(Body::from(body)), read }
}

fn json(value: &impl Serialize) -> Bytes {
    // Bodies of the contract can be written as JSON.
    serde_json::to_vec(value).unwrap_or_default().into()
}

fn read<T: DeserializeOwned>(answer: Response) -> Result<T, TransportError> {
    serde_json::from_slice(&answer?.body).map_err(TransportError::protocol)
}

/// What was announced, if it is time.
fn if_any(answer: Answer) -> Option<Bytes> {
    (answer.status != StatusCode::NO_CONTENT).then_some(answer.body)
}

/// Turns an answer that is none into what the coordinator said.
fn check(answer: Answer) -> Response {
    if answer.status.is_success() {
        return Ok(answer);
    }
    let retry_after = answer.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
    let problem: Problem = serde_json::from_slice(&answer.body).map_err(TransportError::protocol)?;
    Err(TransportError::Problem { problem: Box::new(problem), retry_after: retry_after.map(Duration::from_secs) })
}

/// What the coordinator has against the simulation's operator is told to whoever runs it.
fn refused(error: TransportError) -> SimulationError {
    match error {
        TransportError::Problem { problem, .. } => {
            let errors = problem.errors.iter().map(|error| format!("\n{}: {}", error.field, error.detail));
            SimulationError::Refused(format!("{problem}{}", errors.collect::<String>()))
        }
        error => SimulationError::Coordinator(error.to_string()),
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
