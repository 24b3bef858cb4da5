//! A coordinator behind a real listener.

use std::sync::Arc;
use std::time::Duration;

use coordinator::config::Config;
use coordinator::http::ConnectionCounts;
use coordinator::random::Random;
use coordinator::{Coordinator, Parts, Running, SystemClock};
use federation::time::{Clock as _, MockClock, Timestamp};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use serde_json::{Value, json};
use wire::admin::Role;
use wire::headers::{ATTEMPT, CONTENT_SHA256, MEDIA_MASKED_INPUT};
use wire::participant::{Assignment, CheckInReply, EnrollReply};
use wire::{ParticipantId, route};

use super::{key_and_csr, sha256};

/// A client's end of a connection.
pub(crate) type TlsStream = tokio_rustls::client::TlsStream<tokio::net::TcpStream>;

pub(crate) struct Server {
    pub(crate) running: Running,
    pub(crate) clock: Arc<MockClock>,
    pub(crate) token: String,
}

/// Starts a real server whose clock is a month behind: its certificates for a week have long expired by the clock used in the handshake.
pub(crate) async fn serve(config: &Config) -> Server {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let month_ms = 30 * 24 * 3600 * 1000;
    let clock = Arc::new(MockClock::new(Timestamp(SystemClock.now().0 - month_ms)));
    let running =
        Coordinator::start(config, Parts { clock: clock.clone(), random: Random::from_seed(1) }).await.unwrap();
    let token = running.create_operator_token("test", Role::Admin).await.unwrap().token;
    Server { running, clock, token }
}

impl Server {
    pub(crate) fn client(&self, identity: Option<&str>) -> reqwest::Client {
        self.builder(identity).build().unwrap()
    }

    pub(crate) fn builder(&self, identity: Option<&str>) -> reqwest::ClientBuilder {
        let ca = reqwest::Certificate::from_pem(self.running.ca_pem().as_bytes()).unwrap();
        let mut builder = reqwest::Client::builder().tls_certs_only([ca]).https_only(true);
        if let Some(pem) = identity {
            builder = builder.identity(reqwest::Identity::from_pem(pem.as_bytes()).unwrap());
        }
        builder
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.running.url())
    }

    pub(crate) async fn operate(&self, path: &str, body: &Value) -> Value {
        let request = self.client(None).post(self.url(path)).bearer_auth(&self.token).json(body);
        let reply = request.send().await.unwrap();
        assert!(reply.status().is_success(), "{}", reply.status());
        reply.json().await.unwrap()
    }

    /// A participant's id and its key with certificate.
    pub(crate) async fn enroll(&self) -> (ParticipantId, String) {
        let token = self.operate(route::ENROLLMENT_TOKENS, &json!({})).await["token"].clone();
        let (key, csr) = key_and_csr();
        let body = json!({ "token": token, "csr_pem": csr });
        let reply = self.client(None).post(self.url(route::ENROLL)).json(&body).send().await.unwrap();
        let reply: EnrollReply = reply.json().await.unwrap();
        (reply.participant, key + &reply.certificate_pem)
    }

    /// The next key of the holder of this one, with its certificate.
    pub(crate) async fn renew(&self, identity: &str) -> String {
        let (key, csr) = key_and_csr();
        let request = self.client(Some(identity)).post(self.url(route::RENEW)).json(&json!({ "csr_pem": csr }));
        let reply: EnrollReply = request.send().await.unwrap().json().await.unwrap();
        key + &reply.certificate_pem
    }

    /// The assignment of the first of two participants.
    pub(crate) async fn assigned(&self, a: &reqwest::Client, b: &reqwest::Client) -> Assignment {
        loop {
            self.check_in(b).await;
            match self.check_in(a).await.json().await.unwrap() {
                CheckInReply::Assigned(work) => return *work,
                _ => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    }

    pub(crate) fn upload(
        &self,
        client: &reqwest::Client,
        work: &Assignment,
        id: ParticipantId,
        body: &[u8],
    ) -> reqwest::RequestBuilder {
        client
            .put(self.url(&route::masked_input(work.task, work.round, id)))
            .header("content-type", MEDIA_MASKED_INPUT)
            .header(ATTEMPT, work.attempt)
            .header(CONTENT_SHA256, sha256(body).to_string())
            .body(body.to_vec())
    }

    pub(crate) async fn check_in(&self, client: &reqwest::Client) -> reqwest::Response {
        let body = json!({ "task": "small", "examples": 10 });
        client.post(self.url(route::CHECK_IN)).json(&body).send().await.unwrap()
    }
    /// A TLS connection without requests.
    pub(crate) async fn shake_hands(&self, protocol: &str, identity: Option<&str>) -> TlsStream {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.running.ca_pem().as_bytes()).unwrap()).unwrap();
        let tls = rustls::ClientConfig::builder().with_root_certificates(roots);
        let mut tls = match identity {
            None => tls.with_no_client_auth(),
            Some(pem) => {
                let chain = CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<Vec<_>, _>>().unwrap();
                let key = rustls_pki_types::PrivateKeyDer::from_pem_slice(pem.as_bytes()).unwrap();
                tls.with_client_auth_cert(chain, key).unwrap()
            }
        };
        tls.alpn_protocols = vec![protocol.into()];
        let stream = tokio::net::TcpStream::connect(self.running.address()).await.unwrap();
        let name = "localhost".try_into().unwrap();
        tokio_rustls::TlsConnector::from(Arc::new(tls)).connect(name, stream).await.unwrap()
    }

    /// Waits until the listener's counts match.
    pub(crate) async fn holds(&self, what: &str, wanted: impl Fn(ConnectionCounts) -> bool) {
        for _ in 0..1000 {
            if wanted(self.running.held()) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("it never came to be that {what}: {:?}", self.running.held());
    }
}
