//! A coordinator for tests: SQLite and blobs in memory, a test clock, seeded randomness, and no socket.
//!
//! Requests carry the identity normally established by the handshake.

pub(crate) mod codes;
pub(crate) mod contract;
pub(crate) mod die_at;
pub(crate) mod member;
pub(crate) mod private;
pub(crate) mod provider;
pub(crate) mod secure;
pub(crate) mod server;
pub(crate) mod sse;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use coordinator::config::Config;
use coordinator::http::Connection;
use coordinator::identity::Peer;
use coordinator::random::Random;
use coordinator::{Coordinator, Parts};
use federation::device_reason::DeviceReason;
use federation::id::{Digest, ParticipantId, RoundKey, TaskId};
use federation::time::{Clock as _, MockClock, Timestamp};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use serde_json::{Value, json};
use store::entity::noised_sum::{NoisedSumRow, SumWork};
use tower::ServiceExt as _;
use wire::admin::Role;
use wire::headers::{ATTEMPT, CONTENT_SHA256, MEDIA_MASKED_INPUT};
use wire::participant::{Assignment, CheckInReply, EnrollReply};
use wire::problem::ProblemType;
use wire::route;

/// The start time of every test.
pub(crate) const START: Timestamp = Timestamp(1_750_000_000_000);

/// A coordinator for tests.
pub(crate) struct TestCoordinator {
    pub(crate) inner: Coordinator,
    pub(crate) clock: Arc<MockClock>,
    pub(crate) viewer: Who,
    pub(crate) operator: Who,
    pub(crate) admin: Who,
    /// The bodies of all responses.
    pub(crate) told: Mutex<Vec<Vec<u8>>>,
}

/// The sender of a request.
#[derive(Clone, Debug)]
pub(crate) enum Who {
    Nobody,
    Token(String),
    Participant(Peer),
}

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }

    pub(crate) fn read<T: serde::de::DeserializeOwned>(&self) -> T {
        assert!(self.status.is_success(), "{} {}", self.status, String::from_utf8_lossy(&self.body));
        serde_json::from_slice(&self.body).unwrap()
    }

    /// Checks that this is a complete problem of the kind; returns its detail.
    #[track_caller]
    pub(crate) fn problem(&self, kind: ProblemType) -> String {
        let text = String::from_utf8_lossy(&self.body);
        assert_eq!(self.headers["content-type"], "application/problem+json", "{text}");
        let problem: wire::problem::Problem = serde_json::from_slice(&self.body).unwrap();
        assert_eq!(problem.problem_type(), Some(kind), "{text}");
        assert_eq!(self.status.as_u16(), kind.status());
        assert_eq!((problem.status, problem.title.as_str()), (kind.status(), kind.title()));
        assert_eq!(problem.instance.as_deref(), self.headers["x-request-id"].to_str().ok());
        problem.detail.unwrap_or_default()
    }
}

/// The configuration of a test coordinator.
pub(crate) fn config() -> Config {
    let mut config = Config::default();
    config.database.url = "sqlite::memory:".to_owned();
    config.blobs.url = "memory:".to_owned();
    config.identity.ca_certificate_file = "".into();
    config.identity.ca_key_file = "".into();
    config.aggregation.threads = 1;
    config.http.poll_max_ms = 10_000;
    config.http.listen = "127.0.0.1:0".parse().unwrap();
    config
}

impl TestCoordinator {
    pub(crate) async fn start() -> Self {
        Self::with(&config()).await
    }

    pub(crate) async fn with(config: &Config) -> Self {
        let clock = Arc::new(MockClock::new(START));
        let inner = assemble(config, &clock, 1).await;
        let token =
            async |role: Role| Who::Token(inner.create_operator_token(role.as_str(), role).await.unwrap().token);
        let viewer = token(Role::Viewer).await;
        let operator = token(Role::Operator).await;
        let admin = token(Role::Admin).await;
        Self { inner, clock, viewer, operator, admin, told: Mutex::default() }
    }

    /// Ends the process and starts another over the same files, with its own random `seed`.
    pub(crate) async fn restart(&mut self, config: &Config, seed: u64) {
        self.inner.stop().await;
        self.inner = assemble(config, &self.clock, seed).await;
    }

    /// Another process over the same database, with the same tokens and its own random seed.
    pub(crate) async fn beside(&self, config: &Config, seed: u64) -> Self {
        let inner = assemble(config, &self.clock, seed).await;
        let (clock, viewer) = (Arc::clone(&self.clock), self.viewer.clone());
        let (operator, admin) = (self.operator.clone(), self.admin.clone());
        Self { inner, clock, viewer, operator, admin, told: Mutex::default() }
    }

    /// Sends a request unchanged.
    pub(crate) async fn send(&self, who: &Who, mut request: Request<Body>) -> Reply {
        let mut connection = Connection::default();
        match who {
            Who::Nobody => {}
            Who::Token(token) => {
                request.headers_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
            }
            Who::Participant(peer) => connection.peer = Some(*peer),
        }
        request.extensions_mut().insert(connection);
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let response = self.inner.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes().to_vec();
        contract::check(&method, &path, parts.status, &parts.headers, &body);
        self.told.lock().unwrap().push(body.clone());
        Reply { status: parts.status, headers: parts.headers, body }
    }

    pub(crate) async fn get(&self, who: &Who, path: &str) -> Reply {
        self.send(who, Request::get(path).body(Body::empty()).unwrap()).await
    }

    pub(crate) async fn post(&self, who: &Who, path: &str, body: &Value) -> Reply {
        let request = Request::post(path).header("content-type", "application/json");
        self.send(who, request.body(Body::from(body.to_string())).unwrap()).await
    }

    pub(crate) async fn call(&self, who: &Who, method: Method, path: &str) -> Reply {
        self.send(who, Request::builder().method(method).uri(path).body(Body::empty()).unwrap()).await
    }

    /// An enrolment token's secret.
    pub(crate) async fn enrollment_token(&self) -> String {
        let reply = self.post(&self.operator, route::ENROLLMENT_TOKENS, &json!({})).await;
        reply.json()["token"].as_str().unwrap().to_owned()
    }

    /// Enrols a participant.
    pub(crate) async fn enroll(&self, name: &str) -> (ParticipantId, Who) {
        let (_, csr) = key_and_csr();
        let reply = self.enroll_with(name, &csr).await;
        (reply.participant, who(&reply))
    }

    /// Enrols a participant with this signing request.
    pub(crate) async fn enroll_with(&self, name: &str, csr: &str) -> EnrollReply {
        let token = self.enrollment_token().await;
        let body = json!({ "token": token, "csr_pem": csr, "name": name });
        self.post(&Who::Nobody, route::ENROLL, &body).await.read()
    }

    /// Creates a task and returns its id.
    pub(crate) async fn create_task(&self, spec: &Value) -> TaskId {
        let reply = self.post(&self.operator, route::TASKS, &json!({ "spec": spec })).await;
        assert_eq!(reply.status, 201, "{}", String::from_utf8_lossy(&reply.body));
        reply.json()["id"].as_str().unwrap().parse().unwrap()
    }

    /// Checks in for a task without waiting.
    pub(crate) async fn check_in(&self, who: &Who, task: &str) -> CheckInReply {
        self.post(who, route::CHECK_IN, &json!({ "task": task, "examples": 10, "wait_ms": 0 })).await.read()
    }

    /// Runs all currently possible background work.
    pub(crate) async fn work(&self) {
        self.inner.engine.step_all().await.unwrap();
    }

    /// Runs a round of `small_task` until these have their assignments.
    pub(crate) async fn assigned(&self, participants: &[Who]) -> Vec<Assignment> {
        self.work().await;
        for who in participants {
            self.check_in(who, "small").await;
        }
        self.work().await;
        let mut assignments = Vec::new();
        for who in participants {
            match self.check_in(who, "small").await {
                CheckInReply::Assigned(assignment) => assignments.push(*assignment),
                other => panic!("not assigned: {other:?}"),
            }
        }
        assignments
    }

    /// Stores a released sum of the task's first round: added by the processor, and unmasked by a GPU of this coordinator unless that
    /// failed.
    pub(crate) async fn sum_by(&self, task: TaskId, coordinator: &str, failure: Option<&str>) {
        let (gpu, cpu) = (("gpu", DeviceReason::AskedFor), ("cpu", DeviceReason::ChosenFailed));
        let (unmask_device, unmask_because) = if failure.is_some() { cpu } else { gpu };
        let work = &SumWork {
            coordinator: Some(coordinator.to_owned()),
            sum_device: "cpu".to_owned(),
            sum_because: Some(DeviceReason::TransferCostsMore),
            unmask_device: unmask_device.to_owned(),
            unmask_because: Some(unmask_because),
            device_failure: failure.map(str::to_owned),
            sum_ms: 1,
            unmask_ms: 1,
            keystream_bytes: 1,
        };
        let now = self.now();
        let stored = self.inner.store.transact("test", |tx| {
            Box::pin(async move {
                let attempt = tx.round(RoundKey { task, number: 1 }).await?.unwrap().round.key;
                let (blob, work) = (Digest([7; 32]), Some(work.clone()));
                tx.insert_noised_sum(&NoisedSumRow { attempt, blob, participants: 2, created_at: now, work }).await
            })
        });
        assert!(stored.await.unwrap());
    }

    /// The page of a task's rounds; checks that its entries equal the single views byte for byte.
    pub(crate) async fn rounds(&self, task: &str) -> String {
        let page = self.get(&self.viewer, &format!("/v1/tasks/{task}/rounds?limit=500")).await;
        let mut alone = Vec::new();
        for round in page.json()["items"].as_array().unwrap() {
            let one = self.get(&self.viewer, &format!("/v1/tasks/{task}/rounds/{}", round["number"])).await;
            alone.push(String::from_utf8(one.body).unwrap());
        }
        let page = String::from_utf8(page.body).unwrap();
        assert_eq!(page, format!("{{\"items\":[{}]}}", alone.join(",")));
        page
    }

    /// A request that uploads `body` for an assignment.
    pub(crate) fn upload(&self, assignment: &Assignment, participant: ParticipantId, body: &[u8]) -> Request<Body> {
        let path = route::masked_input(assignment.task, assignment.round, participant);
        let mut request = put(&path, MEDIA_MASKED_INPUT, assignment.attempt, body);
        request.headers_mut().insert(CONTENT_SHA256, sha256(body).to_string().parse().unwrap());
        request
    }

    pub(crate) fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

/// An upload request for this attempt at a round.
pub(crate) fn put(path: &str, media: &str, attempt: u32, body: &[u8]) -> Request<Body> {
    Request::put(path)
        .header("content-type", media)
        .header("content-length", body.len())
        .header(ATTEMPT, attempt)
        .body(Body::from(body.to_vec()))
        .unwrap()
}

async fn assemble(config: &Config, clock: &Arc<MockClock>, seed: u64) -> Coordinator {
    let clock = Arc::clone(clock);
    Coordinator::assemble(config, Parts { clock, random: Random::from_seed(seed) }).await.unwrap()
}

/// The identity established by a handshake with this certificate.
pub(crate) fn who(reply: &EnrollReply) -> Who {
    let certificate = CertificateDer::from_pem_slice(reply.certificate_pem.as_bytes()).unwrap();
    Who::Participant(Peer::from_certificate(&certificate).unwrap())
}

/// A new Ed25519 key in PEM and a signing request for it.
pub(crate) fn key_and_csr() -> (String, String) {
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let csr = rcgen::CertificateParams::default().serialize_request(&key).unwrap();
    (key.serialize_pem(), csr.pem().unwrap())
}

pub(crate) fn sha256(bytes: &[u8]) -> Digest {
    Digest(ring::digest::digest(&ring::digest::SHA256, bytes).as_ref().try_into().unwrap())
}

/// An unmasked task of three parameters and two participants.
pub(crate) fn small_task() -> Value {
    json!({
        "name": "small",
        "model": { "tensors": [{ "name": "w", "shape": [3], "init": { "uniform": { "bound": 0.5 } } }], "seed": 7 },
        "rounds": { "count": 2, "select_max": 8 },
        "selection": { "cohort": { "count": 2 } },
        "metrics": [],
        "secure_aggregation": { "enabled": false },
    })
}

/// The same under another name.
pub(crate) fn named(name: &str) -> Value {
    let mut spec = small_task();
    spec["name"] = json!(name);
    spec
}

/// Length of `small_task`'s masked inputs: three parameters and the weight, 32 bits each.
pub(crate) const SMALL_BYTES: usize = 16;

/// A masked input for `small_task`: these words, and a weight of 10.
pub(crate) fn input(words: [i32; 3]) -> Vec<u8> {
    words.into_iter().chain([10]).flat_map(i32::to_le_bytes).collect()
}
