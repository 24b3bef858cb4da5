//! HTTPS: TLS 1.3 through rustls with the ring provider, HTTP/2 or 1.1, one pinned CA, the participant's certificate.
//!
//! Answers are bounded before they are read, and every request has a timeout. Proxy environment variables are ignored:
//! a participant only talks to its configured coordinator.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use reqwest::header::{
    ACCEPT, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderMap, HeaderValue, IF_RANGE, RANGE, RETRY_AFTER,
};
use reqwest::{Client, RequestBuilder, Response, StatusCode};
use rustls::ClientConfig;
use rustls::RootCertStore;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use secure_agg::codec::Message as _;
use secure_agg::messages::{Agreement, Delivery, Roster, ShareKeys, Survivors};
use secure_agg::unopened::AbortProof;
use serde::Serialize;
use serde::de::DeserializeOwned;
use url::Url;
use wire::participant::{
    AbandonRequest, Announcement, Answer, CheckInReply, CheckInRequest, EnrollReply, EnrollRequest, ModelRef, Receipt,
    RenewRequest,
};
use wire::problem::Problem;
use wire::{Attempt, ParticipantId, TaskId, base64, headers, route};

use super::{Abandonment, Transport, TransportError, Upload};
use crate::identity::Identity;

/// Maximum size of a JSON answer: an assignment with the most and longest tensor names is smaller.
const MAX_ANSWER_BYTES: usize = 8 << 20;
/// For three round trips: TCP, TLS, and one lost packet.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// For the answer to a small request, and for the next piece of a large one.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Slowest upload that is tolerated, in bytes per second.
const SLOWEST_UPLOAD: u64 = 8 << 10;

/// A connection to one coordinator.
pub struct HttpsTransport {
    server: Url,
    roots: Arc<RootCertStore>,
    /// Replaced with the certificate.
    client: RwLock<Client>,
}

impl HttpsTransport {
    /// Checks the address and the CA without connecting.
    ///
    /// # Errors
    /// [`TransportError::Protocol`] if the address is not `https://…` or the CA is not a certificate in PEM.
    pub fn new(server: &str, ca_pem: &str) -> Result<Self, TransportError> {
        let server: Url = server.parse().map_err(|error| setup("the server's address", error))?;
        if server.scheme() != "https" || server.host_str().is_none() {
            return Err(TransportError::protocol(format!(
                "the server's address must begin with https://, not {server}"
            )));
        }
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(ca_pem.as_bytes()) {
            let certificate = certificate.map_err(|error| setup("the CA", error))?;
            roots.add(certificate).map_err(|error| setup("the CA", error))?;
        }
        if roots.is_empty() {
            return Err(TransportError::protocol("the CA holds no certificate in PEM"));
        }
        let roots = Arc::new(roots);
        let client = RwLock::new(client(&roots, None)?);
        Ok(Self { server, roots, client })
    }

    #[must_use]
    pub fn server(&self) -> &str {
        self.server.as_str()
    }

    fn client(&self) -> Client {
        self.client.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn url(&self, path: &str) -> Result<Url, TransportError> {
        self.server.join(path).map_err(|error| setup("the path", error))
    }

    async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
        timeout: Duration,
    ) -> Result<T, TransportError> {
        let response = send(self.client().post(self.url(path)?).json(body), timeout).await?;
        read_json(response).await
    }
}

#[async_trait]
impl Transport for HttpsTransport {
    fn identify(&self, identity: &Identity) -> Result<(), TransportError> {
        let client = client(&self.roots, Some(identity))?;
        *self.client.write().unwrap_or_else(PoisonError::into_inner) = client;
        Ok(())
    }

    async fn enroll(&self, request: &EnrollRequest) -> Result<EnrollReply, TransportError> {
        self.post(route::ENROLL, request, ANSWER_TIMEOUT).await
    }

    async fn renew(&self, request: &RenewRequest) -> Result<EnrollReply, TransportError> {
        self.post(route::RENEW, request, ANSWER_TIMEOUT).await
    }

    async fn check_in(&self, request: &CheckInRequest) -> Result<CheckInReply, TransportError> {
        let timeout = ANSWER_TIMEOUT.saturating_add(Duration::from_millis(request.wait_ms));
        self.post(route::CHECK_IN, request, timeout).await
    }

    async fn fetch_model(&self, task: TaskId, model: &ModelRef, sink: &mut Vec<u8>) -> Result<(), TransportError> {
        let url = self.url(&route::model_parameters(task, model.version))?;
        let mut request = self.client().get(url).header(ACCEPT, headers::MEDIA_SAFETENSORS);
        if !sink.is_empty() {
            request = request.header(RANGE, format!("bytes={}-", sink.len()));
            request = request.header(IF_RANGE, format!("\"{}\"", model.sha256));
        }
        let request = request.header(headers::PROTOCOL, headers::PROTOCOL_VERSION);
        let response = tokio::time::timeout(ANSWER_TIMEOUT, request.send());
        let response = response.await.map_err(|_| timed_out())?.map_err(TransportError::unreachable)?;
        let mut response = check(response).await?;
        check_range(&response, sink)?;
        let most = usize::try_from(model.bytes).unwrap_or(usize::MAX);
        sink.reserve_exact(most.saturating_sub(sink.len()));
        loop {
            let chunk = tokio::time::timeout(ANSWER_TIMEOUT, response.chunk());
            let Some(chunk) = chunk.await.map_err(|_| timed_out())?.map_err(TransportError::unreachable)? else {
                return Ok(());
            };
            if chunk.len() > most - sink.len() {
                sink.clear();
                return Err(TransportError::protocol(format!("the model is longer than {most} bytes")));
            }
            sink.extend_from_slice(&chunk);
        }
    }

    async fn upload(&self, upload: &Upload) -> Result<Receipt, TransportError> {
        let place = upload.place;
        let url = self.url(&route::masked_input(place.task, place.round, upload.participant))?;
        let mut request = self
            .client()
            .put(url)
            .header(CONTENT_TYPE, headers::MEDIA_MASKED_INPUT)
            .header(headers::ATTEMPT, place.attempt)
            .header(headers::CONTENT_SHA256, upload.sha256.to_string())
            .body(upload.body.clone());
        if let Some(signed) = &upload.signed {
            request = request.header(headers::SIGNED_INPUT, base64::encode(signed));
        }
        read_json(send(request, patience(&upload.body)).await?).await
    }

    async fn announcement(
        &self,
        what: Announcement,
        place: Attempt,
        participant: ParticipantId,
        wait: Duration,
    ) -> Result<Option<Bytes>, TransportError> {
        let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        let path = route::announcement(what, place, participant, wait_ms);
        let timeout = ANSWER_TIMEOUT.saturating_add(wait);
        let request = self.client().get(self.url(&path)?).header(ACCEPT, headers::MEDIA_SECURE_AGG);
        let response = send(request, timeout).await?;
        if response.status() == StatusCode::NO_CONTENT {
            return Ok(None);
        }
        let limit = match what {
            Announcement::Roster => Roster::MAX_BYTES,
            Announcement::Delivery => Delivery::MAX_BYTES,
            Announcement::Survivors => Survivors::MAX_BYTES,
            Announcement::Agreement => Agreement::MAX_BYTES,
        };
        read_message(response, limit).await.map(Some)
    }

    async fn evidence(&self, place: Attempt, dealer: ParticipantId) -> Result<Bytes, TransportError> {
        let path = route::evidence(place, dealer);
        let request = self.client().get(self.url(&path)?).header(ACCEPT, headers::MEDIA_SECURE_AGG);
        read_message(send(request, ANSWER_TIMEOUT).await?, ShareKeys::MAX_BYTES).await
    }

    async fn answer(
        &self,
        what: Answer,
        place: Attempt,
        participant: ParticipantId,
        body: Bytes,
    ) -> Result<(), TransportError> {
        let url = self.url(&route::answer(what, place.task, place.round, participant))?;
        let patience = patience(&body);
        let request = self.client().put(url).header(CONTENT_TYPE, headers::MEDIA_SECURE_AGG);
        let request = request.header(headers::ATTEMPT, place.attempt).body(body);
        send(request, patience).await.map(|_| ())
    }

    async fn abandon(&self, abandonment: &Abandonment) -> Result<(), TransportError> {
        let place = abandonment.place;
        let path = route::abandon(place.task, place.round, abandonment.participant);
        let body = AbandonRequest { attempt: place.attempt, reason: abandonment.reason, refusal: abandonment.refusal };
        send(self.client().post(self.url(&path)?).json(&body), ANSWER_TIMEOUT).await.map(|_| ())
    }

    async fn abort_statement(
        &self,
        place: Attempt,
        participant: ParticipantId,
        body: Bytes,
    ) -> Result<(), TransportError> {
        let url = self.url(&route::abort_statement(place.task, place.round, participant))?;
        let request = self.client().put(url).header(CONTENT_TYPE, headers::MEDIA_SECURE_AGG);
        let request = request.header(headers::ATTEMPT, place.attempt).body(body);
        send(request, ANSWER_TIMEOUT).await.map(|_| ())
    }

    async fn abort_statements(&self, place: Attempt) -> Result<Option<Bytes>, TransportError> {
        let path = route::abort_statements(place);
        let request = self.client().get(self.url(&path)?).header(ACCEPT, headers::MEDIA_SECURE_AGG);
        let response = send(request, ANSWER_TIMEOUT).await?;
        if response.status() == StatusCode::NO_CONTENT {
            return Ok(None);
        }
        read_message(response, AbortProof::MAX_BYTES).await.map(Some)
    }
}

/// A client with TLS 1.3, the pinned CA, and the participant's certificate, if any.
fn client(roots: &Arc<RootCertStore>, identity: Option<&Identity>) -> Result<Client, TransportError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| setup("TLS", error))?
        .with_root_certificates(Arc::clone(roots));
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
    let version = HeaderValue::from(headers::PROTOCOL_VERSION);
    Client::builder()
        .tls_backend_preconfigured(tls)
        .https_only(true)
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT_TIMEOUT)
        .user_agent(concat!("tributary-client-sdk/", env!("CARGO_PKG_VERSION")))
        .default_headers(HeaderMap::from_iter([(
            headers::PROTOCOL.parse().map_err(|error| setup("a header", error))?,
            version,
        )]))
        .build()
        .map_err(|error| setup("the HTTP client", error))
}

/// Timeout of an upload.
fn patience(body: &Bytes) -> Duration {
    ANSWER_TIMEOUT + Duration::from_secs(body.len() as u64 / SLOWEST_UPLOAD)
}

fn setup(what: &str, error: impl std::fmt::Display) -> TransportError {
    TransportError::protocol(format!("{what} cannot be used: {error}"))
}

async fn send(request: RequestBuilder, timeout: Duration) -> Result<Response, TransportError> {
    let response = request.timeout(timeout).send().await.map_err(TransportError::unreachable)?;
    check(response).await
}

/// Converts an unsuccessful answer to the coordinator's problem.
async fn check(response: Response) -> Result<Response, TransportError> {
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let retry_after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
    let retry_after = retry_after.map(Duration::from_secs);
    let is_problem = content_type(&response) == Some(headers::MEDIA_PROBLEM);
    let problem = match read_bounded(response, MAX_ANSWER_BYTES).await {
        Ok(body) if is_problem => serde_json::from_slice(&body).ok(),
        _ => None,
    };
    let problem = problem.unwrap_or_else(|| from_status(status));
    Err(TransportError::Problem { problem: Box::new(problem), retry_after })
}

/// The problem for an answer of an intermediate proxy without problem details.
fn from_status(status: StatusCode) -> Problem {
    Problem {
        kind: "about:blank".to_owned(),
        title: format!("HTTP status {status}"),
        status: status.as_u16(),
        detail: None,
        instance: None,
        errors: Vec::new(),
    }
}

fn content_type(response: &Response) -> Option<&str> {
    let value = response.headers().get(CONTENT_TYPE)?.to_str().ok()?;
    value.split(';').next().map(str::trim)
}

async fn read_json<T: DeserializeOwned>(response: Response) -> Result<T, TransportError> {
    let body = read_bounded(response, MAX_ANSWER_BYTES).await?;
    serde_json::from_slice(&body).map_err(TransportError::protocol)
}

/// A secure aggregation message, which the caller decodes.
async fn read_message(response: Response, limit: usize) -> Result<Bytes, TransportError> {
    if content_type(&response) != Some(headers::MEDIA_SECURE_AGG) {
        return Err(TransportError::protocol(format!("the answer is not {}", headers::MEDIA_SECURE_AGG)));
    }
    read_bounded(response, limit).await.map(Bytes::from)
}

async fn read_bounded(mut response: Response, limit: usize) -> Result<Vec<u8>, TransportError> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(TransportError::unreachable)? {
        if body.len() + chunk.len() > limit {
            return Err(TransportError::protocol(format!("the answer is longer than {limit} bytes")));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// A complete file replaces the content of `sink`; a part must start at its end.
fn check_range(response: &Response, sink: &mut Vec<u8>) -> Result<(), TransportError> {
    if response.status() != StatusCode::PARTIAL_CONTENT {
        sink.clear();
        return Ok(());
    }
    let range = response.headers().get(CONTENT_RANGE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let begins = range.strip_prefix("bytes ").and_then(|range| range.split('-').next()?.parse::<usize>().ok());
    if begins == Some(sink.len()) {
        return Ok(());
    }
    let (etag, have) = (response.headers().get(ETAG), sink.len());
    let error = format!("asked for bytes from {have} on, got {range:?} (ETag {etag:?})");
    sink.clear();
    Err(TransportError::protocol(error))
}

fn timed_out() -> TransportError {
    TransportError::unreachable(format!("nothing came for {} s", ANSWER_TIMEOUT.as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ca() -> String {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        rcgen::CertificateParams::new(vec![]).unwrap().self_signed(&key).unwrap().pem()
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
