//! From a participant's wishes to the coordinator's routes and back, without a socket: the requests that
//! `client_sdk::transport::https` would send, handed to the router, with the identity that the handshake would establish.
//!
//! Polls that wait are asked without waiting; the world holds them open ([`OpenPoll`]) and asks again when the coordinator
//! would have called.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use client_sdk::participant::machine::{Input, ModelFile, Request as Wish};
use client_sdk::transport::TransportError;
use coordinator::http::{Connection, KeepsTime};
use coordinator::identity::Peer;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, IF_NONE_MATCH, RETRY_AFTER};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tower::ServiceExt as _;
use wire::participant::{AbandonRequest, Announcement, CheckInReply, CheckInRequest, ModelRef};
use wire::problem::Problem;
use wire::{Attempt, ParticipantId, TaskId, base64, headers, route};

use crate::SimulationError;
use crate::clock::Moment;

/// A poll that the coordinator has nothing for yet.
pub(crate) struct OpenPoll {
    /// What is asked.
    pub(crate) question: Question,
    /// When it is given up.
    pub(crate) until: Moment,
    /// What it is answered then.
    pub(crate) otherwise: Box<Input>,
}

/// What is asked again while a poll is open.
#[derive(Clone)]
pub(crate) enum Question {
    /// Is there work?
    CheckIn(CheckInRequest),
    /// Has the session come so far?
    Announcement { what: Announcement, place: Attempt, participant: ParticipantId },
}

/// What came back.
pub(crate) struct Exchange {
    pub(crate) input: Input,
    /// Bytes of the request's body and of the answer's.
    pub(crate) up: u64,
    pub(crate) down: u64,
    /// If that was only "nothing yet": what to ask again, and for how long.
    pub(crate) open: Option<(Question, Duration)>,
}

/// The way to the coordinator.
pub(crate) struct Network {
    router: Router,
    /// An operator's token.
    token: String,
    /// The model that was fetched last. A version never changes, so whoever fetches it next is let in by the coordinator
    /// and given these bytes, as a cache on the way would.
    cached: Mutex<Option<Arc<ModelFile>>>,
}

/// What the coordinator said, or why there is no answer.
pub(crate) type Told<T> = Result<T, TransportError>;

/// An answer of the coordinator.
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl Network {
    pub(crate) fn new(router: Router, token: String) -> Self {
        Self { router, token, cached: Mutex::default() }
    }

    /// How many bytes a request's body has, to tell how long it is on its way.
    pub(crate) fn size(wish: &Wish) -> u64 {
        let bytes = match wish {
            Wish::Upload(upload) => upload.body.len(),
            Wish::Answer { body, .. } => body.len(),
            _ => 0,
        };
        bytes as u64
    }

    /// Asks for a device.
    pub(crate) async fn ask(&self, peer: Option<Peer>, wish: Wish) -> Exchange {
        match wish {
            Wish::CheckIn(request) => self.check_in(peer, request).await,
            Wish::Announcement { what, place, participant, wait } => {
                self.announcement(peer, what, place, participant, wait).await
            }
            wish => self.tell(peer, wish).await,
        }
    }

    /// A model version's file. Nothing cuts a transfer off here, so there is never a part to go on behind.
    pub(crate) async fn fetch(&self, peer: Option<Peer>, task: TaskId, model: &ModelRef) -> Told<Arc<ModelFile>> {
        let known = self.cached().clone().filter(|file| file.sha256() == model.sha256);
        let mut request = builder(Method::GET, &route::model_parameters(task, model.version))
            .header(ACCEPT, headers::MEDIA_SAFETENSORS);
        if known.is_some() {
            request = request.header(IF_NONE_MATCH, format!("\"{}\"", model.sha256));
        }
        let answer = self.send(peer, request.body(Body::empty()), None).await?;
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

    /// Asks once more what a poll waits for.
    pub(crate) async fn ask_again(&self, peer: Option<Peer>, question: Question, left: Duration) -> Exchange {
        match question {
            Question::CheckIn(request) => {
                self.check_in(peer, CheckInRequest { wait_ms: millis(left), ..request }).await
            }
            Question::Announcement { what, place, participant } => {
                self.announcement(peer, what, place, participant, left).await
            }
        }
    }

    async fn check_in(&self, peer: Option<Peer>, request: CheckInRequest) -> Exchange {
        let (body, up) = json(&request);
        let sent = builder(Method::POST, route::CHECK_IN).header(CONTENT_TYPE, "application/json").body(body);
        let answer = self.send(peer, sent, Some(KeepsTime)).await.and_then(check);
        let down = length(&answer);
        let reply = answer.and_then(|answer| read(&answer));
        let waits = matches!(reply, Ok(CheckInReply::ComeBack { .. })) && request.wait_ms > 0;
        let wait = Duration::from_millis(request.wait_ms);
        let open = waits.then_some((Question::CheckIn(request), wait));
        Exchange { input: Input::CheckedIn(reply), up, down, open }
    }

    async fn announcement(
        &self,
        peer: Option<Peer>,
        what: Announcement,
        place: Attempt,
        participant: ParticipantId,
        wait: Duration,
    ) -> Exchange {
        let path = route::announcement(what, place, participant, 0);
        let request = builder(Method::GET, &path).header(ACCEPT, headers::MEDIA_SECURE_AGG).body(Body::empty());
        let answer = self.send(peer, request, None).await.and_then(check);
        let down = length(&answer);
        let told = answer.map(|answer| (answer.status != StatusCode::NO_CONTENT).then_some(answer.body));
        let waits = matches!(told, Ok(None)) && !wait.is_zero();
        let open = waits.then_some((Question::Announcement { what, place, participant }, wait));
        Exchange { input: Input::Announced(told), up: 0, down, open }
    }

    /// Requests that are answered at once.
    async fn tell(&self, peer: Option<Peer>, wish: Wish) -> Exchange {
        let at_once = |input, up, down| Exchange { input, up, down, open: None };
        match wish {
            Wish::Enroll(request) => {
                let (answer, up) = self.post(peer, route::ENROLL, &request).await;
                let down = length(&answer);
                at_once(Input::Enrolled(answer.and_then(|answer| read(&answer))), up, down)
            }
            Wish::Renew(request) => {
                let (answer, up) = self.post(peer, route::RENEW, &request).await;
                let down = length(&answer);
                at_once(Input::Renewed(answer.and_then(|answer| read(&answer))), up, down)
            }
            Wish::Upload(upload) => {
                let path = route::masked_input(upload.place.task, upload.place.round, upload.participant);
                let up = upload.body.len() as u64;
                let mut request = builder(Method::PUT, &path)
                    .header(CONTENT_TYPE, headers::MEDIA_MASKED_INPUT)
                    .header(CONTENT_LENGTH, up)
                    .header(headers::ATTEMPT, upload.place.attempt)
                    .header(headers::CONTENT_SHA256, upload.sha256.to_string());
                if let Some(signed) = &upload.signed {
                    request = request.header(headers::SIGNED_INPUT, base64::encode(signed));
                }
                let answer = self.send(peer, request.body(Body::from(upload.body)), None).await.and_then(check);
                let down = length(&answer);
                at_once(Input::Uploaded(answer.and_then(|answer| read(&answer))), up, down)
            }
            Wish::Evidence { place, dealer } => {
                let path = route::evidence(place, dealer);
                let request = builder(Method::GET, &path).header(ACCEPT, headers::MEDIA_SECURE_AGG).body(Body::empty());
                let answer = self.send(peer, request, None).await.and_then(check);
                let down = length(&answer);
                at_once(Input::Evidenced(answer.map(|answer| answer.body)), 0, down)
            }
            Wish::Answer { what, place, participant, body } => {
                let path = route::answer(what, place.task, place.round, participant);
                let up = body.len() as u64;
                let request = builder(Method::PUT, &path)
                    .header(CONTENT_TYPE, headers::MEDIA_SECURE_AGG)
                    .header(CONTENT_LENGTH, up)
                    .header(headers::ATTEMPT, place.attempt)
                    .body(Body::from(body));
                let answer = self.send(peer, request, None).await.and_then(check);
                let down = length(&answer);
                at_once(Input::Answered(answer.map(drop)), up, down)
            }
            Wish::AbortStatement { place, participant, body } => {
                let path = route::abort_statement(place.task, place.round, participant);
                let up = body.len() as u64;
                let request = builder(Method::PUT, &path)
                    .header(CONTENT_TYPE, headers::MEDIA_SECURE_AGG)
                    .header(CONTENT_LENGTH, up)
                    .header(headers::ATTEMPT, place.attempt)
                    .body(Body::from(body));
                let answer = self.send(peer, request, None).await.and_then(check);
                let down = length(&answer);
                at_once(Input::Answered(answer.map(drop)), up, down)
            }
            Wish::AbortStatements { place } => {
                let path = route::abort_statements(place);
                let request = builder(Method::GET, &path).header(ACCEPT, headers::MEDIA_SECURE_AGG).body(Body::empty());
                let answer = self.send(peer, request, None).await.and_then(check);
                let down = length(&answer);
                let told = |answer: Answer| (answer.status != StatusCode::NO_CONTENT).then_some(answer.body);
                at_once(Input::Announced(answer.map(told)), 0, down)
            }
            Wish::Abandon(abandonment) => {
                let place = abandonment.place;
                let path = route::abandon(place.task, place.round, abandonment.participant);
                let body =
                    AbandonRequest { attempt: place.attempt, reason: abandonment.reason, refusal: abandonment.refusal };
                let (answer, up) = self.post(peer, &path, &body).await;
                let down = length(&answer);
                at_once(Input::Abandoned(answer.map(drop)), up, down)
            }
            // They wait, and are asked elsewhere.
            Wish::CheckIn(_) | Wish::Announcement { .. } => at_once(Input::Tick, 0, 0),
        }
    }

    async fn post(&self, peer: Option<Peer>, path: &str, body: &impl Serialize) -> (Told<Answer>, u64) {
        let (body, up) = json(body);
        let request = builder(Method::POST, path).header(CONTENT_TYPE, "application/json").body(body);
        (self.send(peer, request, None).await.and_then(check), up)
    }

    async fn send(
        &self,
        peer: Option<Peer>,
        request: http::Result<Request<Body>>,
        keeps_time: Option<KeepsTime>,
    ) -> Told<Answer> {
        let mut request = request.map_err(TransportError::protocol)?;
        request.extensions_mut().insert(Connection { peer, ..Connection::default() });
        if let Some(keeps_time) = keeps_time {
            request.extensions_mut().insert(keeps_time);
        }
        let response = match self.router.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        let (parts, body) = response.into_parts();
        let body = body.collect().await.map_err(TransportError::unreachable)?.to_bytes();
        Ok(Answer { status: parts.status, headers: parts.headers, body })
    }

    /// Looks at something as an operator; none if it is not there.
    pub(crate) async fn look<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>, SimulationError> {
        match self.operate(Method::GET, path, Body::empty()).await {
            Ok(answer) => read(&answer).map(Some).map_err(refused),
            Err(TransportError::Problem { problem, .. }) if problem.status == 404 => Ok(None),
            Err(error) => Err(refused(error)),
        }
    }

    /// Fetches bytes as an operator.
    pub(crate) async fn download(&self, path: &str) -> Result<Bytes, SimulationError> {
        self.operate(Method::GET, path, Body::empty()).await.map(|answer| answer.body).map_err(refused)
    }

    /// Makes something as an operator.
    pub(crate) async fn make<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, SimulationError> {
        let answer = self.operate(Method::POST, path, json(body).0).await.map_err(refused)?;
        read(&answer).map_err(refused)
    }

    async fn operate(&self, method: Method, path: &str, body: Body) -> Told<Answer> {
        let request = builder(method, path)
            .header(AUTHORIZATION, format!("Bearer {}", self.token))
            .header(CONTENT_TYPE, "application/json")
            .body(body);
        self.send(None, request, None).await.and_then(check)
    }
}

fn builder(method: Method, path: &str) -> http::request::Builder {
    Request::builder().method(method).uri(path).header(headers::PROTOCOL, headers::PROTOCOL_VERSION)
}

fn json(value: &impl Serialize) -> (Body, u64) {
    // Bodies of the contract can be written as JSON.
    let bytes = serde_json::to_vec(value).unwrap_or_default();
    let length = bytes.len() as u64;
    (Body::from(bytes), length)
}

fn read<T: DeserializeOwned>(answer: &Answer) -> Told<T> {
    serde_json::from_slice(&answer.body).map_err(TransportError::protocol)
}

fn length(answer: &Told<Answer>) -> u64 {
    answer.as_ref().map_or(0, |answer| answer.body.len() as u64)
}

/// Turns an answer that is none into what the coordinator said.
fn check(answer: Answer) -> Told<Answer> {
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
