//! What only a real connection shows: TLS 1.3, client certificates, shutdown.

#![expect(clippy::unwrap_used, reason = "helpers of tests are not tests themselves")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use coordinator::config::Config;
use coordinator::random::Random;
use coordinator::{Coordinator, Parts, Running, SystemClock};
use federation::time::{Clock as _, MockClock, Timestamp};
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use wire::admin::Role;
use wire::headers::{ATTEMPT, CONTENT_SHA256, MEDIA_MASKED_INPUT};
use wire::participant::{CheckInReply, EnrollReply, Receipt};
use wire::problem::{Problem, ProblemType};
use wire::{ParticipantId, route};

use support::{config, input, key_and_csr, sha256, small_task};

struct Server {
    running: Running,
    clock: Arc<MockClock>,
    token: String,
}

/// Starts a real server whose clock is a month behind: whatever certificate it issues for a week has long expired by the
/// clock that the handshake sees.
async fn serve(config: &Config) -> Server {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let month_ms = 30 * 24 * 3600 * 1000;
    let clock = Arc::new(MockClock::new(Timestamp(SystemClock.now().0 - month_ms)));
    let running =
        Coordinator::start(config, Parts { clock: clock.clone(), random: Random::from_seed(1) }).await.unwrap();
    let token = running.create_operator_token("test", Role::Admin).await.unwrap().token;
    Server { running, clock, token }
}

impl Server {
    fn client(&self, identity: Option<&str>) -> reqwest::Client {
        let ca = reqwest::Certificate::from_pem(self.running.ca_pem().as_bytes()).unwrap();
        let mut builder = reqwest::Client::builder().tls_certs_only([ca]).https_only(true);
        if let Some(pem) = identity {
            builder = builder.identity(reqwest::Identity::from_pem(pem.as_bytes()).unwrap());
        }
        builder.build().unwrap()
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.running.url())
    }

    async fn operate(&self, path: &str, body: &Value) -> Value {
        let request = self.client(None).post(self.url(path)).bearer_auth(&self.token).json(body);
        let reply = request.send().await.unwrap();
        assert!(reply.status().is_success(), "{}", reply.status());
        reply.json().await.unwrap()
    }

    /// A participant's id and its key with certificate.
    async fn enroll(&self) -> (ParticipantId, String) {
        let token = self.operate(route::ENROLLMENT_TOKENS, &json!({})).await["token"].clone();
        let (key, csr) = key_and_csr();
        let body = json!({ "token": token, "csr_pem": csr });
        let reply = self.client(None).post(self.url(route::ENROLL)).json(&body).send().await.unwrap();
        let reply: EnrollReply = reply.json().await.unwrap();
        (reply.participant, key + &reply.certificate_pem)
    }

    async fn check_in(&self, client: &reqwest::Client) -> reqwest::Response {
        let body = json!({ "task": "small", "examples": 10 });
        client.post(self.url(route::CHECK_IN)).json(&body).send().await.unwrap()
    }
}

async fn kind(response: reqwest::Response) -> Option<ProblemType> {
    response.json::<Problem>().await.unwrap().problem_type()
}

#[tokio::test]
async fn participants_are_known_by_their_certificates_and_refused_once_revoked_or_expired() {
    let server = serve(&config()).await;
    let (id, identity) = server.enroll().await;
    assert_eq!(kind(server.check_in(&server.client(None)).await).await, Some(ProblemType::Unauthenticated));

    let client = server.client(Some(&identity));
    let reply = server.check_in(&client).await;
    assert_eq!((reply.status().as_u16(), reply.version()), (200, reqwest::Version::HTTP_2));
    // The same connection, the next request.
    server.operate(&route::fill(route::PARTICIPANT_REVOKE, &[&id]), &json!({})).await;
    assert_eq!(kind(server.check_in(&client).await).await, Some(ProblemType::CertificateRevoked));

    let (_, identity) = server.enroll().await;
    server.clock.advance(Duration::from_secs(8 * 24 * 3600));
    let reply = server.check_in(&server.client(Some(&identity))).await;
    assert_eq!(kind(reply).await, Some(ProblemType::CertificateExpired));
    server.running.shutdown().await;
}

#[tokio::test]
async fn a_foreign_certificate_ends_the_handshake() {
    let server = serve(&config()).await;
    let other = serve(&config()).await;
    let (_, foreign) = other.enroll().await;
    let client = server.client(Some(&foreign));
    let body = json!({ "task": "small", "examples": 10 });
    assert!(client.post(server.url(route::CHECK_IN)).json(&body).send().await.is_err());
    // And whoever trusts another authority does not trust this server.
    assert!(other.client(None).get(server.url(route::HEALTHZ)).send().await.is_err());
    assert_eq!(server.client(None).get(server.url(route::HEALTHZ)).send().await.unwrap().status(), 200);
}

#[tokio::test]
async fn older_versions_of_tls_are_refused() {
    let server = serve(&config()).await;
    let mut stream = tokio::net::TcpStream::connect(server.running.address()).await.unwrap();
    // ClientHello of TLS 1.2: random, no session, one ECDHE suite, null compression, groups and signature schemes.
    let mut hello = vec![3, 3];
    hello.extend([7; 32]);
    hello.extend([0, 0, 2, 0xc0, 0x2b, 1, 0]);
    let extensions = [0, 10, 0, 4, 0, 2, 0, 29, 0, 13, 0, 4, 0, 2, 4, 3];
    hello.extend([0, 16]);
    hello.extend(extensions);
    let length = u8::try_from(hello.len()).unwrap();
    let mut record = vec![22, 3, 1, 0, length + 4, 1, 0, 0, length];
    record.extend(hello);
    stream.write_all(&record).await.unwrap();
    let mut alert = Vec::new();
    stream.read_to_end(&mut alert).await.unwrap();
    // A fatal alert, protocol_version (RFC 8446 §6.2).
    assert_eq!((alert[0], &alert[5..7]), (21, &[2, 70][..]), "{alert:?}");
}

#[tokio::test]
async fn shutting_down_finishes_an_upload_that_has_begun() {
    let server = serve(&config()).await;
    let task = server.operate(route::TASKS, &json!({ "spec": small_task() })).await["id"].clone();
    let (a, b) = (server.enroll().await, server.enroll().await);
    let (client_a, client_b) = (server.client(Some(&a.1)), server.client(Some(&b.1)));
    let work = loop {
        server.check_in(&client_b).await;
        match server.check_in(&client_a).await.json().await.unwrap() {
            CheckInReply::Assigned(work) => break work,
            _ => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    };
    assert_eq!(json!(work.task), task);
    let body = input([1, 2, 3]);
    let digest = sha256(&body).to_string();
    let (first, second) = (body[..8].to_vec(), body[8..].to_vec());
    let (release, released) = tokio::sync::oneshot::channel::<()>();
    let stream = futures_util::stream::once(async move { Ok::<_, std::io::Error>(first) }).chain(
        futures_util::stream::once(async move {
            released.await.unwrap();
            Ok(second)
        }),
    );
    let upload = client_a
        .put(server.url(&route::masked_input(work.task, work.round, a.0)))
        .header("content-type", MEDIA_MASKED_INPUT)
        .header(ATTEMPT, work.attempt)
        .header(CONTENT_SHA256, digest)
        .body(reqwest::Body::wrap_stream(stream));
    let upload = tokio::spawn(async move { upload.send().await.unwrap().json::<Receipt>().await.unwrap() });
    tokio::time::sleep(Duration::from_millis(100)).await;
    let store = server.running.coordinator().store.clone();
    let down = tokio::spawn(server.running.shutdown());
    tokio::time::sleep(Duration::from_millis(50)).await;
    release.send(()).unwrap();
    assert_eq!(upload.await.unwrap().sha256, sha256(&body));
    drop((client_a, client_b));
    down.await.unwrap();
    let round = wire::RoundKey { task: work.task, number: 1 };
    let kept = store.read("test", |tx| Box::pin(async move { tx.admitted(round, 1, a.0).await })).await;
    assert!(kept.map_err(|error: store::StoreError| error.to_string()).unwrap().is_some());
}
