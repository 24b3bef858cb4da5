//! From a participant's wishes to the coordinator's routes and back, without a socket: the requests that the SDK's HTTPS
//! transport would send, with the identity that the handshake would establish.

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use client_sdk::participant::machine::{Input, Request as Wish};
use client_sdk::transport::TransportError;
use coordinator::http::Connection;
use coordinator::identity::Peer;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE};
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tower::ServiceExt as _;
use wire::participant::{AbandonRequest, CheckInReply, ModelRef};
use wire::problem::Problem;
use wire::{TaskId, base64, headers, route};

/// The way to the coordinator.
pub(crate) struct Network {
    router: Router,
    /// An operator's token.
    token: String,
}

/// What came back.
pub(crate) struct Heard {
    pub(crate) input: Input,
    /// Nothing yet: a poll that would be held open.
    pub(crate) is_early: bool,
}

type Told = Result<(StatusCode, Bytes), TransportError>;

impl Network {
    pub(crate) fn new(router: Router, token: String) -> Self {
        Self { router, token }
    }

    /// Asks for a participant; polls are answered at once.
    pub(crate) async fn ask(&self, peer: Option<Peer>, wish: Wish) -> Heard {
        let mut is_early = false;
        let input = match wish {
            Wish::Enroll(request) => Input::Enrolled(read(&self.post(peer, route::ENROLL, &request).await)),
            Wish::Renew(request) => Input::Renewed(read(&self.post(peer, route::RENEW, &request).await)),
            Wish::CheckIn(request) => {
                let reply = read(&self.post(peer, route::CHECK_IN, &request).await);
                is_early = matches!(reply, Ok(CheckInReply::ComeBack { .. }));
                Input::CheckedIn(reply)
            }
            Wish::Announcement { what, place, participant, .. } => {
                let path = route::announcement(what, place, participant, 0);
                let told = self.get(peer, &path, headers::MEDIA_SECURE_AGG).await;
                let told = told.map(|(status, body)| (status != StatusCode::NO_CONTENT).then_some(body));
                is_early = matches!(told, Ok(None));
                Input::Announced(told)
            }
            Wish::Evidence { place, dealer } => {
                let path = route::evidence(place, dealer);
                Input::Evidenced(self.get(peer, &path, headers::MEDIA_SECURE_AGG).await.map(|(_, body)| body))
            }
            Wish::Upload(upload) => {
                let path = route::masked_input(upload.place.task, upload.place.round, upload.participant);
                let mut request = builder(Method::PUT, &path)
                    .header(CONTENT_TYPE, headers::MEDIA_MASKED_INPUT)
                    .header(CONTENT_LENGTH, upload.body.len())
                    .header(headers::ATTEMPT, upload.place.attempt)
                    .header(headers::CONTENT_SHA256, upload.sha256.to_string());
                if let Some(signed) = &upload.signed {
                    request = request.header(headers::SIGNED_INPUT, base64::encode(signed));
                }
                Input::Uploaded(read(&self.send(peer, request.body(Body::from(upload.body)).unwrap()).await))
            }
            Wish::Answer { what, place, participant, body } => {
                let path = route::answer(what, place.task, place.round, participant);
                let request = builder(Method::PUT, &path)
                    .header(CONTENT_TYPE, headers::MEDIA_SECURE_AGG)
                    .header(CONTENT_LENGTH, body.len())
                    .header(headers::ATTEMPT, place.attempt);
                Input::Answered(self.send(peer, request.body(Body::from(body)).unwrap()).await.map(drop))
            }
            Wish::AbortStatement { place, participant, body } => {
                let path = route::abort_statement(place.task, place.round, participant);
                let request = builder(Method::PUT, &path)
                    .header(CONTENT_TYPE, headers::MEDIA_SECURE_AGG)
                    .header(CONTENT_LENGTH, body.len())
                    .header(headers::ATTEMPT, place.attempt);
                Input::Answered(self.send(peer, request.body(Body::from(body)).unwrap()).await.map(drop))
            }
            Wish::AbortStatements { place } => {
                let path = route::abort_statements(place);
                let told = self.get(peer, &path, headers::MEDIA_SECURE_AGG).await;
                Input::Announced(told.map(|(status, body)| (status != StatusCode::NO_CONTENT).then_some(body)))
            }
            Wish::Abandon(abandonment) => {
                let place = abandonment.place;
                let path = route::abandon(place.task, place.round, abandonment.participant);
                let body =
                    AbandonRequest { attempt: place.attempt, reason: abandonment.reason, refusal: abandonment.refusal };
                Input::Abandoned(self.post(peer, &path, &body).await.map(drop))
            }
        };
        Heard { input, is_early }
    }

    /// A model version's file.
    pub(crate) async fn fetch(&self, peer: Option<Peer>, task: TaskId, model: &ModelRef) -> Input {
        let path = route::model_parameters(task, model.version);
        match self.get(peer, &path, headers::MEDIA_SAFETENSORS).await {
            Ok((_, body)) => Input::Fetched { have: body.to_vec(), result: Ok(()) },
            Err(error) => Input::Fetched { have: Vec::new(), result: Err(error) },
        }
    }

    /// What an operator sees.
    pub(crate) async fn look<T: DeserializeOwned>(&self, path: &str) -> T {
        read(&self.operate(Method::GET, path, Body::empty()).await).unwrap()
    }

    /// The same, if it is there.
    pub(crate) async fn find<T: DeserializeOwned>(&self, path: &str) -> Option<T> {
        read(&self.operate(Method::GET, path, Body::empty()).await).ok()
    }

    /// Bytes that an operator sees.
    pub(crate) async fn download(&self, path: &str) -> Bytes {
        self.operate(Method::GET, path, Body::empty()).await.unwrap().1
    }

    /// What an operator makes.
    pub(crate) async fn make<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> T {
        read(&self.operate(Method::POST, path, Body::from(serde_json::to_vec(body).unwrap())).await).unwrap()
    }

    async fn operate(&self, method: Method, path: &str, body: Body) -> Told {
        let request = builder(method, path)
            .header(AUTHORIZATION, format!("Bearer {}", self.token))
            .header(CONTENT_TYPE, "application/json");
        self.send(None, request.body(body).unwrap()).await
    }

    async fn get(&self, peer: Option<Peer>, path: &str, media: &str) -> Told {
        self.send(peer, builder(Method::GET, path).header(ACCEPT, media).body(Body::empty()).unwrap()).await
    }

    async fn post(&self, peer: Option<Peer>, path: &str, body: &impl Serialize) -> Told {
        let request = builder(Method::POST, path).header(CONTENT_TYPE, "application/json");
        self.send(peer, request.body(Body::from(serde_json::to_vec(body).unwrap())).unwrap()).await
    }

    async fn send(&self, peer: Option<Peer>, mut request: Request<Body>) -> Told {
        request.extensions_mut().insert(Connection { peer, ..Connection::default() });
        let (parts, body) = self.router.clone().oneshot(request).await.unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        if parts.status.is_success() {
            return Ok((parts.status, body));
        }
        let problem: Problem = serde_json::from_slice(&body).unwrap();
        Err(problem.into())
    }
}

fn builder(method: Method, path: &str) -> http::request::Builder {
    Request::builder().method(method).uri(path).header(headers::PROTOCOL, headers::PROTOCOL_VERSION)
}

fn read<T: DeserializeOwned>(told: &Told) -> Result<T, TransportError> {
    match told {
        Ok((_, body)) => Ok(serde_json::from_slice(body).unwrap()),
        Err(error) => Err(error.clone()),
    }
}
