//! A federation in this process: the real coordinator, the SDK's participants, and requests that take no socket, so that a
//! thousand participants cost what they compute.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::http::{Method, Request, StatusCode, request};
use client_sdk::identity::Identity;
use client_sdk::transport::{Abandonment, Place, Transport, TransportError, Upload};
use coordinator::http::Connection;
use coordinator::identity::Peer;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tower::ServiceExt as _;
use wire::participant::{
    AbandonRequest, Announcement, Answer, CheckInReply, CheckInRequest, EnrollReply, EnrollRequest, ModelRef, Receipt,
    RenewRequest,
};
use wire::problem::Problem;
use wire::{ParticipantId, TaskId, base64, headers, route};

/// Largest answer.
const MAX_BYTES: usize = 64 << 20;

/// One peer's way to the coordinator.
pub(crate) struct InProcess {
    router: Router,
    token: Option<String>,
    peer: Mutex<Option<Peer>>,
}

impl InProcess {
    /// Of somebody who has no certificate yet.
    pub(crate) fn participant(router: Router) -> Self {
        Self { router, token: None, peer: Mutex::default() }
    }

    /// Of an operator.
    pub(crate) fn operator(router: Router, token: String) -> Self {
        Self { router, token: Some(token), peer: Mutex::default() }
    }

    /// `GET` of what is there.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> T {
        self.try_get(path).await.unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// `GET`.
    pub(crate) async fn try_get<T: DeserializeOwned>(&self, path: &str) -> Result<T, TransportError> {
        read(&self.send(request(Method::GET, path), Body::empty()).await?.1)
    }

    /// `GET` of bytes.
    pub(crate) async fn download(&self, path: &str) -> Bytes {
        self.send(request(Method::GET, path), Body::empty()).await.unwrap().1
    }

    /// `POST`.
    pub(crate) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, TransportError> {
        let request = request(Method::POST, path).header("content-type", "application/json");
        read(&self.send(request, Body::from(serde_json::to_vec(body).unwrap())).await?.1)
    }

    async fn send(&self, request: request::Builder, body: Body) -> Result<(StatusCode, Bytes), TransportError> {
        let peer = *self.peer.lock().unwrap_or_else(PoisonError::into_inner);
        let mut request = request.extension(Connection { peer, ..Connection::default() });
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let response = self.router.clone().oneshot(request.body(body).unwrap()).await.unwrap();
        let status = response.status();
        let body = to_bytes(response.into_body(), MAX_BYTES).await.unwrap();
        if status.is_success() {
            return Ok((status, body));
        }
        Err(serde_json::from_slice::<Problem>(&body).unwrap().into())
    }
}

fn request(method: Method, path: &str) -> request::Builder {
    Request::builder().method(method).uri(path).header(headers::PROTOCOL, headers::PROTOCOL_VERSION)
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, TransportError> {
    serde_json::from_slice(body).map_err(|error| TransportError::Protocol(error.to_string()))
}

#[async_trait]
impl Transport for InProcess {
    fn identify(&self, identity: &Identity) -> Result<(), TransportError> {
        let certificate = CertificateDer::from_pem_slice(identity.certified.certificate_pem.as_bytes()).unwrap();
        *self.peer.lock().unwrap_or_else(PoisonError::into_inner) = Peer::from_certificate(&certificate);
        Ok(())
    }

    async fn enroll(&self, request: &EnrollRequest) -> Result<EnrollReply, TransportError> {
        self.post(route::ENROLL, request).await
    }

    async fn renew(&self, request: &RenewRequest) -> Result<EnrollReply, TransportError> {
        self.post(route::RENEW, request).await
    }

    async fn check_in(&self, request: &CheckInRequest) -> Result<CheckInReply, TransportError> {
        self.post(route::CHECK_IN, request).await
    }

    async fn fetch_model(&self, task: TaskId, model: &ModelRef, sink: &mut Vec<u8>) -> Result<(), TransportError> {
        let request = request(Method::GET, &route::model_parameters(task, model.version));
        let (_, bytes) = self.send(request, Body::empty()).await?;
        sink.clear();
        sink.extend_from_slice(&bytes);
        Ok(())
    }

    async fn upload(&self, upload: &Upload) -> Result<Receipt, TransportError> {
        let place = upload.place;
        let mut request = request(Method::PUT, &route::masked_input(place.task, place.round, upload.participant))
            .header("content-type", headers::MEDIA_MASKED_INPUT)
            .header("content-length", upload.body.len())
            .header(headers::ATTEMPT, place.attempt)
            .header(headers::CONTENT_SHA256, upload.sha256.to_string());
        if let Some(signed) = &upload.signed {
            request = request.header(headers::SIGNED_INPUT, base64::encode(signed));
        }
        read(&self.send(request, Body::from(upload.body.clone())).await?.1)
    }

    async fn announcement(
        &self,
        what: Announcement,
        place: Place,
        participant: ParticipantId,
        wait: Duration,
    ) -> Result<Option<Bytes>, TransportError> {
        let wait_ms = u64::try_from(wait.as_millis()).unwrap();
        let path = route::announcement(what, place.task, place.round, participant, place.attempt, wait_ms);
        let (status, body) = self.send(request(Method::GET, &path), Body::empty()).await?;
        Ok((status != StatusCode::NO_CONTENT).then_some(body))
    }

    async fn evidence(&self, place: Place, dealer: ParticipantId) -> Result<Bytes, TransportError> {
        let path = route::evidence(place.task, place.round, dealer, place.attempt);
        Ok(self.send(request(Method::GET, &path), Body::empty()).await?.1)
    }

    async fn answer(
        &self,
        what: Answer,
        place: Place,
        participant: ParticipantId,
        body: Bytes,
    ) -> Result<(), TransportError> {
        let request = request(Method::PUT, &route::answer(what, place.task, place.round, participant))
            .header("content-type", headers::MEDIA_SECURE_AGG)
            .header("content-length", body.len())
            .header(headers::ATTEMPT, place.attempt);
        self.send(request, Body::from(body)).await.map(|_| ())
    }

    async fn abandon(&self, abandonment: &Abandonment) -> Result<(), TransportError> {
        let place = abandonment.place;
        let body = AbandonRequest { attempt: place.attempt, reason: abandonment.reason };
        let path = route::abandon(place.task, place.round, abandonment.participant);
        let request = request(Method::POST, &path).header("content-type", "application/json");
        self.send(request, Body::from(serde_json::to_vec(&body).unwrap())).await.map(|_| ())
    }
}
