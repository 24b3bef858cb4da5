//! A participant that drops out in the middle of a round, as phones do: its network stops working.
//!
//! The coordinator gets no notice, and the participant cannot clean up. Its owner drops it immediately and later
//! restarts it from its journal.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use client_sdk::identity::Identity;
use client_sdk::transport::{
    Download, HttpRequest, HttpsTransport, Request, Response, Transport, TransportError, Upload,
};
use futures_util::stream;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::sync::{mpsc, watch};
use wire::participant::{Answer, CheckInReply, ModelRef, UploadReply};
use wire::{Attempt, ParticipantId, TaskId};

use super::plan::{DropPlan, Point};

/// Time for half an upload to leave this machine before the connection is cut.
const ON_THE_WIRE: Duration = Duration::from_millis(20);

/// A participant's dropout from an attempt at a round.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dropout {
    pub(super) place: Attempt,
    pub(super) participant: ParticipantId,
}

/// HTTPS that stops working at the planned point.
pub(super) struct DropoutTransport {
    inner: HttpsTransport,
    url: String,
    ca_pem: String,
    plan: DropPlan,
    index: u32,
    /// Closed until all participants have enrolled.
    gate: watch::Receiver<bool>,
    state: Mutex<State>,
    vanished: watch::Sender<Option<Dropout>>,
}

#[derive(Default)]
struct State {
    /// The point at which this participant drops out.
    fate: Option<(Attempt, Point)>,
    participant: Option<ParticipantId>,
    /// For the request that is cut in the middle.
    cut: Option<reqwest::Client>,
}

impl DropoutTransport {
    pub(super) fn new(
        url: &str,
        ca_pem: &str,
        plan: DropPlan,
        index: u32,
        gate: watch::Receiver<bool>,
    ) -> Result<(Self, watch::Receiver<Option<Dropout>>), TransportError> {
        let (vanished, watcher) = watch::channel(None);
        let transport = Self {
            inner: HttpsTransport::new(url, ca_pem)?,
            url: url.to_owned(),
            ca_pem: ca_pem.to_owned(),
            plan,
            index,
            gate,
            state: Mutex::default(),
            vanished,
        };
        Ok((transport, watcher))
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stays pending if this is the point at which the participant drops out.
    async fn reach(&self, point: Point) {
        let fate = self.state().fate;
        if let Some((place, _)) = fate.filter(|(_, at)| *at == point) {
            self.vanish(place).await;
        }
    }

    async fn vanish(&self, place: Attempt) {
        let participant = self.state().participant;
        self.vanished.send_replace(participant.map(|participant| Dropout { place, participant }));
        std::future::pending::<()>().await;
    }

    /// Sends half of an upload, then cuts the connection.
    async fn send_half(&self, upload: &Upload) {
        let client = self.state().cut.clone();
        if let Some(client) = client {
            let (sender, receiver) = mpsc::channel::<Bytes>(1);
            let body = stream::unfold(receiver, |mut receiver| async {
                receiver.recv().await.map(|piece| (Ok::<_, std::io::Error>(piece), receiver))
            });
            let HttpRequest { http, .. } = HttpRequest::of(&Request::Upload(upload.clone()));
            let request = client
                .request(http.method().clone(), format!("{}{}", self.url.trim_end_matches('/'), http.uri()))
                .headers(http.headers().clone())
                .header("content-length", upload.body.len())
                .body(reqwest::Body::wrap_stream(body));
            let half = async {
                let _ = sender.send(upload.body.slice(..upload.body.len() / 2)).await;
                tokio::time::sleep(ON_THE_WIRE).await;
            };
            tokio::select! {
                _ = request.send() => {}
                () = half => {}
            }
        }
        self.vanish(upload.place).await;
    }
}

/// A client that shows the participant's certificate, on a connection of its own.
fn client(ca_pem: &str, identity: &Identity) -> Option<reqwest::Client> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(ca_pem.as_bytes()) {
        roots.add(certificate.ok()?).ok()?;
    }
    let chain = CertificateDer::pem_slice_iter(identity.certified.certificate_pem.as_bytes());
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(identity.key.expose_pkcs8().to_vec()));
    let tls = rustls::ClientConfig::builder_with_protocol_versions(&[&rustls::version::TLS13])
        .with_root_certificates(roots)
        .with_client_auth_cert(chain.collect::<Result<_, _>>().ok()?, key)
        .ok()?;
    reqwest::Client::builder().tls_backend_preconfigured(tls).no_proxy().http1_only().build().ok()
}

#[async_trait]
impl Transport for DropoutTransport {
    fn identify(&self, identity: &Identity) -> Result<(), TransportError> {
        let mut state = self.state();
        state.participant = Some(identity.certified.participant);
        if self.plan.probability > 0.0 {
            state.cut = client(&self.ca_pem, identity);
        }
        drop(state);
        self.inner.identify(identity)
    }

    async fn send(&self, request: &Request) -> Response {
        if let Request::CheckIn(_) = request {
            // A closed channel means that the demo has ended.
            let _ = self.gate.clone().wait_for(|open| *open).await;
        }
        if let Request::Upload(upload) = request {
            self.reach(Point::Trained).await;
            let fate = self.state().fate;
            if fate == Some((upload.place, Point::Uploading)) {
                self.send_half(upload).await;
            }
        }
        if let Request::Manifest(_) = request {
            self.reach(Point::Trained).await;
        }
        if let Request::Part(part) = request {
            // A part arrives whole or not at all: it leaves between two of them.
            let fate = self.state().fate;
            if fate == Some((part.place, Point::Uploading)) {
                self.vanish(part.place).await;
            }
        }
        let response = self.inner.send(request).await;
        match (request, &response) {
            (_, Response::CheckedIn(Ok(CheckInReply::Assigned(assignment)))) => {
                let place = assignment.attempt_key();
                let point = self.plan.point(place.round, place.attempt, self.index);
                self.state().fate = point.map(|point| (place, point));
                self.reach(Point::Assigned).await;
            }
            (_, Response::Uploaded(Ok(_)) | Response::Manifested(Ok(UploadReply::Accepted(_)))) => {
                self.reach(Point::Reported).await;
            }
            (Request::Answer { what: Answer::KeyShares, .. }, Response::Answered(Ok(()))) => {
                self.reach(Point::Shared).await;
            }
            (Request::Answer { what: Answer::Consistency, .. }, Response::Answered(Ok(()))) => {
                self.reach(Point::Signed).await;
            }
            _ => {}
        }
        response
    }

    async fn fetch_model(&self, task: TaskId, model: &ModelRef, sink: &mut Download) -> Result<(), TransportError> {
        self.inner.fetch_model(task, model, sink).await?;
        self.reach(Point::Fetched).await;
        Ok(())
    }
}
