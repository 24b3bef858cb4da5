//! Signed requests: validity, and attacks by a party between participant and coordinator.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use coordinator::http::Connection;
use coordinator::random::Random;
use coordinator::{Coordinator, Parts};
use federation::id::ParticipantId;
use federation::time::Timestamp;
use http::{HeaderMap, HeaderValue, Method, Request};
use http_body_util::BodyExt as _;
use rcgen::{BasicConstraints, Certificate, CertificateParams, IsCa, Issuer, KeyPair, PKCS_ED25519, SanType};
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject as _;
use serde_json::json;
use tower::ServiceExt as _;
use wire::certificate::{PARTICIPANT_URN, chain_der};
use wire::headers::{CERTIFICATE, TIME};
use wire::participant::{Assignment, CheckInReply, EnrollReply, Receipt};
use wire::problem::ProblemType;
use wire::route;
use wire::signature::{CONTENT_DIGEST, RequestKey, SIGNATURE, SIGNATURE_INPUT, content_digest};

use crate::support::{Reply, TestCoordinator, Who, config, input, key_and_csr, sha256, small_task, who};

/// A participant with signed requests.
struct Device {
    id: ParticipantId,
    who: Who,
    key: RequestKey,
}

impl Device {
    async fn enroll(t: &TestCoordinator, name: &str) -> Self {
        let (key, csr) = key_and_csr();
        Self::new(&key, &t.enroll_with(name, &csr).await)
    }

    fn new(key_pem: &str, reply: &EnrollReply) -> Self {
        let key = PrivateKeyDer::from_pem_slice(key_pem.as_bytes()).unwrap();
        let own = chain_der(&reply.certificate_pem).unwrap().swap_remove(0);
        Self { id: reply.participant, who: who(reply), key: RequestKey::new(key.secret_der(), &own).unwrap() }
    }

    /// A request for this coordinator's name, as forwarded by a balancer.
    fn sign(&self, request: Request<Vec<u8>>, at: Timestamp) -> Request<Vec<u8>> {
        self.sign_for("localhost", request, at)
    }

    fn sign_for(&self, server: &str, request: Request<Vec<u8>>, at: Timestamp) -> Request<Vec<u8>> {
        let (mut parts, body) = request.into_parts();
        let digest = (!body.is_empty()).then(|| sha256(&body));
        self.key.sign(&mut parts, server, digest, at, Random::from_seed(next()).bytes());
        parts.headers.insert("host", server.parse().unwrap());
        Request::from_parts(parts, body)
    }

    fn check_in(&self, at: Timestamp) -> Request<Vec<u8>> {
        self.sign(check_in(), at)
    }
}

/// A new number on each call.
fn next() -> u64 {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}

fn check_in() -> Request<Vec<u8>> {
    let body = json!({ "task": "small", "examples": 10, "wait_ms": 0 });
    Request::post(route::CHECK_IN).header("content-type", "application/json").body(body.to_string().into()).unwrap()
}

/// The response of the listener for signed requests.
async fn send(router: &Router, request: &Request<Vec<u8>>) -> Reply {
    send_from(router, request, Connection::default()).await
}

async fn send_from(router: &Router, request: &Request<Vec<u8>>, connection: Connection) -> Reply {
    let mut request = request.clone();
    if !request.body().is_empty() {
        let length = request.body().len();
        request.headers_mut().insert("content-length", length.into());
    }
    request.extensions_mut().insert(connection);
    let response = router.clone().oneshot(request.map(Body::from)).await.unwrap();
    let (parts, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes().to_vec();
    Reply { status: parts.status, headers: parts.headers, body }
}

#[tokio::test]
async fn who_signs_is_known_and_nobody_else() {
    let t = TestCoordinator::start().await;
    let a = Device::enroll(&t, "a").await;
    let router = t.inner.signed_router();
    let _: CheckInReply = send(&router, &a.check_in(t.now())).await.read();
    send(&router, &check_in()).await.problem(ProblemType::Unauthenticated);
    // Regardless of a handshake.
    let Who::Participant(peer) = a.who else { panic!("a participant") };
    let shaken = Connection { peer: Some(peer), ..Connection::default() };
    send_from(&router, &check_in(), shaken).await.problem(ProblemType::Unauthenticated);
}

#[tokio::test]
async fn where_tls_says_who_is_there_a_signature_says_nothing() {
    let t = TestCoordinator::start().await;
    let a = Device::enroll(&t, "a").await;
    let refused = send(&t.inner.router, &a.check_in(t.now())).await;
    let detail = refused.problem(ProblemType::Unauthenticated);
    assert!(detail.contains("http.signed_listen"), "{detail}");
    // The same with a certificate.
    let Who::Participant(peer) = a.who else { panic!("a participant") };
    let shaken = Connection { peer: Some(peer), ..Connection::default() };
    send_from(&t.inner.router, &a.check_in(t.now()), shaken).await.problem(ProblemType::Unauthenticated);
    send_from(&t.inner.router, &check_in(), shaken).await.read::<CheckInReply>();
}

#[tokio::test]
async fn what_another_key_signed_does_not_count() {
    let t = TestCoordinator::start().await;
    let (a, b) = (Device::enroll(&t, "a").await, Device::enroll(&t, "b").await);
    let router = t.inner.signed_router();
    // b with a's certificate is revealed by `keyid`; with a's `keyid` as well, by the signature.
    let (of_a, mut forged) = (a.check_in(t.now()), b.check_in(t.now()));
    forged.headers_mut().insert(CERTIFICATE, of_a.headers()[CERTIFICATE].clone());
    let detail = send(&router, &forged).await.problem(ProblemType::SignatureInvalid);
    assert!(detail.contains("keyid"), "{detail}");
    forged.headers_mut().insert(SIGNATURE_INPUT, of_a.headers()[SIGNATURE_INPUT].clone());
    let detail = send(&router, &forged).await.problem(ProblemType::SignatureInvalid);
    assert!(detail.contains("not of the certificate's key"), "{detail}");
    // The reverse: b's signature and certificate on a's request.
    let mut moved = of_a.clone();
    for name in [CERTIFICATE, SIGNATURE_INPUT, SIGNATURE] {
        moved.headers_mut().insert(name, forged.headers()[name].clone());
    }
    *moved.uri_mut() = route::RENEW.parse().unwrap();
    send(&router, &moved).await.problem(ProblemType::SignatureInvalid);
}

#[tokio::test]
async fn what_is_changed_on_the_way_is_refused() {
    let t = TestCoordinator::start().await;
    let a = Device::enroll(&t, "a").await;
    let router = t.inner.signed_router();
    let changed = async |change: &dyn Fn(&mut Request<Vec<u8>>)| {
        let mut request = a.check_in(t.now());
        change(&mut request);
        send(&router, &request).await
    };
    let invalid =
        async |change: &dyn Fn(&mut Request<Vec<u8>>)| changed(change).await.problem(ProblemType::SignatureInvalid);
    invalid(&|request| *request.uri_mut() = route::RENEW.parse().unwrap()).await;
    invalid(&|request| *request.uri_mut() = format!("{}?x=1", route::CHECK_IN).parse().unwrap()).await;
    invalid(&|request| *request.method_mut() = Method::PUT).await;
    let set = |name: &'static str, text: &'static str| {
        move |request: &mut Request<Vec<u8>>| {
            request.headers_mut().insert(name, HeaderValue::from_static(text));
        }
    };
    invalid(&set("content-type", "text/plain")).await;
    invalid(&set("tributary-attempt", "7")).await;
    // Another body, also with its matching digest.
    let body = br#"{"task":"small","examples":99,"wait_ms":0}"#.to_vec();
    changed(&|request| *request.body_mut() = body.clone()).await.problem(ProblemType::DigestMismatch);
    changed(&|request| request.body_mut().clear()).await.problem(ProblemType::DigestMismatch);
    let digest = content_digest(sha256(&body));
    invalid(&|request| {
        *request.body_mut() = body.clone();
        request.headers_mut().insert(CONTENT_DIGEST, digest.parse().unwrap());
    })
    .await;
    // Without each of the parts.
    for name in ["content-type", CONTENT_DIGEST, CERTIFICATE, SIGNATURE_INPUT, SIGNATURE, "host"] {
        let detail = invalid(&|request| drop(request.headers_mut().remove(name))).await;
        assert!(detail.contains(name), "{name}: {detail}");
    }
    assert!(changed(&|_| ()).await.status == 200);
}

#[tokio::test]
async fn a_body_that_no_digest_was_signed_for_is_refused() {
    let t = TestCoordinator::start().await;
    let a = Device::enroll(&t, "a").await;
    let mut request = check_in();
    let body = std::mem::take(request.body_mut());
    let mut request = a.sign(request, t.now());
    *request.body_mut() = body;
    let detail = send(&t.inner.signed_router(), &request).await.problem(ProblemType::SignatureInvalid);
    assert!(detail.contains("content-digest"), "{detail}");
}

#[tokio::test]
async fn what_was_signed_for_another_server_does_not_count_here() {
    let t = TestCoordinator::start().await;
    let a = Device::enroll(&t, "a").await;
    let router = t.inner.signed_router();
    for server in ["other.example", "localhost:8443"] {
        let request = a.sign_for(server, check_in(), t.now());
        let detail = send(&router, &request).await.problem(ProblemType::SignatureInvalid);
        assert!(detail.contains(server) && detail.contains("http.signed_names"), "{detail}");
        // Also not if the proxy claims otherwise.
        let mut renamed = request.clone();
        renamed.headers_mut().insert("host", "localhost".parse().unwrap());
        let detail = send(&router, &renamed).await.problem(ProblemType::SignatureInvalid);
        assert!(detail.contains("was changed on the way"), "{detail}");
    }
    let mut named = config();
    named.http.signed_listen = Some("127.0.0.1:0".parse().unwrap());
    named.http.signed_names = vec!["FL.example:8443".to_owned(), "fl.example:443".to_owned()];
    let t = TestCoordinator::with(&named).await;
    let a = Device::enroll(&t, "a").await;
    let router = t.inner.signed_router();
    for server in ["fl.example:8443", "fl.example"] {
        send(&router, &a.sign_for(server, check_in(), t.now())).await.read::<CheckInReply>();
    }
    send(&router, &a.check_in(t.now())).await.problem(ProblemType::SignatureInvalid);
}

#[tokio::test]
async fn certificates_of_others_and_those_that_ended_do_not_count() {
    let t = TestCoordinator::start().await;
    let other = TestCoordinator::start().await;
    let router = t.inner.signed_router();
    // The other coordinator's authority has the same name but another key.
    let foreign = Device::enroll(&other, "a").await;
    let detail = send(&router, &foreign.check_in(t.now())).await.problem(ProblemType::SignatureInvalid);
    assert!(detail.contains("authorities"), "{detail}");

    let a = Device::enroll(&t, "a").await;
    send(&router, &a.check_in(t.now())).await.read::<CheckInReply>();
    t.post(&t.admin, &route::fill(route::PARTICIPANT_REVOKE, &[&a.id]), &json!({})).await;
    send(&router, &a.check_in(t.now())).await.problem(ProblemType::CertificateRevoked);

    let b = Device::enroll(&t, "b").await;
    // Its successor is valid from its first use; this ends b's certificate.
    let (key, csr) = key_and_csr();
    let body = json!({ "csr_pem": csr }).to_string().into();
    let renew = Request::post(route::RENEW).header("content-type", "application/json").body(body).unwrap();
    let next = Device::new(&key, &send(&router, &b.sign(renew, t.now())).await.read());
    send(&router, &b.check_in(t.now())).await.read::<CheckInReply>();
    send(&router, &next.check_in(t.now())).await.read::<CheckInReply>();
    send(&router, &b.check_in(t.now())).await.problem(ProblemType::Unauthenticated);
    t.advance(Duration::from_secs(7 * 24 * 3600));
    send(&router, &next.check_in(t.now())).await.problem(ProblemType::CertificateExpired);
}

#[tokio::test]
async fn a_signature_counts_for_a_minute() {
    let t = TestCoordinator::start().await;
    let a = Device::enroll(&t, "a").await;
    let router = t.inner.signed_router();
    let seconds = |s: i64| Timestamp(t.now().0 + s * 1000);
    for (dated, counts) in [(-61, false), (-60, false), (-59, true), (0, true), (59, true), (61, false)] {
        let reply = send(&router, &a.check_in(seconds(dated))).await;
        match counts {
            true => assert_eq!(reply.status, 200, "{dated}"),
            false => {
                let detail = reply.problem(ProblemType::SignatureTime);
                assert!(detail.contains("2025-06-15T15:06:40Z"), "it says what time it is: {detail}");
            }
        }
    }
    // A signature cannot extend its own validity.
    let mut longer = a.check_in(t.now());
    let input = longer.headers()[SIGNATURE_INPUT].to_str().unwrap();
    let input = input.replace("expires=1750000060", "expires=1750000061");
    longer.headers_mut().insert(SIGNATURE_INPUT, input.parse().unwrap());
    send(&router, &longer).await.problem(ProblemType::SignatureTime);
}

/// The coordinator's time in a response.
fn told(headers: &HeaderMap) -> HeaderValue {
    headers[TIME].clone()
}

#[tokio::test]
async fn a_device_with_a_wrong_clock_dates_requests_as_it_is_told() {
    let t = TestCoordinator::start().await;
    let a = Device::enroll(&t, "a").await;
    let router = t.inner.signed_router();
    let dated = |time: &HeaderValue, at: Timestamp| {
        let mut request = check_in();
        request.headers_mut().insert(TIME, time.clone());
        a.sign(request, at)
    };
    let wrong = Timestamp(t.now().0 - 3_600_000);
    let refused = send(&router, &a.check_in(wrong)).await;
    refused.problem(ProblemType::SignatureTime);
    let time = told(&refused.headers);
    let at: i64 = time.to_str().unwrap().split('.').next().unwrap().parse().unwrap();
    assert_eq!(at, t.now().0);
    t.advance(Duration::from_secs(20));
    let answered = send(&router, &dated(&time, Timestamp(at))).await;
    assert_eq!(answered.status, 200);
    // Each response contains it, so that the next request needs no retry.
    assert!(told(&answered.headers).to_str().unwrap().starts_with(&t.now().0.to_string()));
    assert!(!send(&router, &a.check_in(t.now())).await.headers.contains_key(TIME), "whose clock is right needs none");

    // The balancer reports a later time, stores the request signed with it, and sends it at that time.
    let later = Timestamp(t.now().0 + 86_400_000);
    let mac = time.to_str().unwrap().split_once('.').unwrap().1;
    let kept = [format!("{}.{mac}", later.0), format!("{}.", later.0), later.0.to_string(), "x".to_owned()]
        .map(|told| dated(&told.parse().unwrap(), later));
    let stripped = {
        let mut request = kept[0].clone();
        request.headers_mut().remove(TIME);
        request
    };
    t.advance(Duration::from_secs(86_400));
    for request in &kept {
        send(&router, request).await.problem(ProblemType::SignatureTime);
    }
    send(&router, &stripped).await.problem(ProblemType::SignatureInvalid);
    // An outdated time is invalid, too.
    send(&router, &dated(&time, t.now())).await.problem(ProblemType::SignatureTime);
}

#[tokio::test]
async fn the_same_request_counts_once_at_whichever_coordinator_it_arrives() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config();
    config.identity.ca_certificate_file = folder.path().join("ca.pem");
    config.identity.ca_key_file = folder.path().join("ca-key.pem");
    let t = TestCoordinator::with(&config).await;
    let clock = Arc::clone(&t.clock);
    let parts = Parts { clock, random: Random::from_seed(9) };
    let other = Coordinator::assemble_on(&config, parts, t.inner.store.clone()).unwrap();
    let (router, others) = (t.inner.signed_router(), other.signed_router());
    let a = Device::enroll(&t, "a").await;

    let poll = a.check_in(t.now());
    assert_eq!(send(&router, &poll).await.status, 200);
    send(&router, &poll).await.problem(ProblemType::SignatureReplayed);

    let (_, csr) = key_and_csr();
    let body: Vec<u8> = json!({ "csr_pem": csr }).to_string().into();
    let renew = Request::post(route::RENEW).header("content-type", "application/json").body(body).unwrap();
    let renewed = a.sign(renew.clone(), t.now());
    assert_eq!(send(&router, &renewed).await.status, 200);
    for replica in [&router, &others] {
        send(replica, &renewed).await.problem(ProblemType::SignatureReplayed);
    }
    // With a new signature it is another request.
    assert_eq!(send(&others, &a.sign(renew, t.now())).await.status, 200);

    // Its nonce is deleted once all dates have expired.
    t.advance(Duration::from_secs(700));
    t.inner.engine.collect_all_garbage().await.unwrap();
    let nonces =
        t.inner.store.transact("test", |tx| Box::pin(async move { tx.forget_nonces(Timestamp(i64::MAX)).await }));
    let nonces: Result<u32, store::StoreError> = nonces.await;
    assert_eq!(nonces.unwrap(), 0);
    send(&others, &renewed).await.problem(ProblemType::SignatureTime);
}

#[tokio::test]
async fn a_second_host_is_refused() {
    let t = TestCoordinator::start().await;
    let a = Device::enroll(&t, "a").await;
    let router = t.inner.signed_router();
    for other in ["localhost", "evil.example"] {
        let healthy = Request::get(route::HEALTHZ).header("host", "localhost").body(Vec::new()).unwrap();
        for mut request in [a.check_in(t.now()), check_in(), healthy] {
            request.headers_mut().append("host", other.parse().unwrap());
            if request.headers().get_all("host").iter().count() < 2 {
                request.headers_mut().append("host", HeaderValue::from_static("localhost"));
            }
            let detail = send(&router, &request).await.problem(ProblemType::MalformedRequest);
            assert!(detail.contains("`host`"), "{detail}");
        }
    }
    let _: CheckInReply = send(&router, &a.check_in(t.now())).await.read();
}

#[tokio::test]
async fn operators_are_not_served_where_a_balancer_reads() {
    let t = TestCoordinator::start().await;
    let router = t.inner.signed_router();
    let Who::Token(token) = &t.admin else { panic!("a token") };
    for path in [route::TASKS, route::OPERATOR_TOKENS, route::METRICS, route::OPENAPI] {
        let mut request = Request::get(path).header("host", "localhost").body(Vec::new()).unwrap();
        let detail = send(&router, &request).await.problem(ProblemType::NotFound);
        assert!(detail.contains("http.listen"), "{detail}");
        request.headers_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        let detail = send(&router, &request).await.problem(ProblemType::Forbidden);
        assert!(detail.contains("http.listen"), "{detail}");
    }
    for path in [route::HEALTHZ, route::READYZ] {
        let request = Request::get(path).body(Vec::new()).unwrap();
        assert_eq!(send(&router, &request).await.status, 200);
    }
}

/// The assignment of `small_task` for the first of two devices.
async fn assigned(t: &TestCoordinator, router: &Router, devices: &[Device]) -> Assignment {
    t.create_task(&small_task()).await;
    t.work().await;
    for device in devices {
        send(router, &device.check_in(t.now())).await.read::<CheckInReply>();
    }
    t.work().await;
    match send(router, &devices[0].check_in(t.now())).await.read() {
        CheckInReply::Assigned(assignment) => *assignment,
        other => panic!("not assigned: {other:?}"),
    }
}

fn upload(assignment: &Assignment, id: ParticipantId, body: &[u8]) -> Request<Vec<u8>> {
    Request::put(route::masked_input(assignment.task, assignment.round, id))
        .header("content-type", wire::headers::MEDIA_MASKED_INPUT)
        .header(wire::headers::ATTEMPT, assignment.attempt)
        .header(wire::headers::CONTENT_SHA256, sha256(body).to_string())
        .body(body.to_vec())
        .unwrap()
}

#[tokio::test]
async fn an_enrolment_is_not_signed_and_all_that_follows_is() {
    let t = TestCoordinator::start().await;
    let router = t.inner.signed_router();
    let mut devices = Vec::new();
    for name in ["a", "b"] {
        let (key, csr) = key_and_csr();
        let body = json!({ "token": t.enrollment_token().await, "csr_pem": csr, "name": name }).to_string();
        let request = Request::post(route::ENROLL).header("content-type", "application/json").body(body.into());
        devices.push(Device::new(&key, &send(&router, &request.unwrap()).await.read()));
    }
    let assignment = assigned(&t, &router, &devices).await;
    let model = Request::get(route::model_parameters(assignment.task, 0)).header("range", "bytes=8-").body(Vec::new());
    let mut model = devices[0].sign(model.unwrap(), t.now());
    assert_eq!(send(&router, &model).await.status, 206);
    model.headers_mut().remove("range");
    send(&router, &model).await.problem(ProblemType::SignatureInvalid);

    let body = input([1, 2, 3]);
    let signed = devices[0].sign(upload(&assignment, devices[0].id, &body), t.now());
    // Changed bytes are dropped: they are hashed on arrival, and get no receipt.
    let mut changed = signed.clone();
    changed.body_mut()[0] ^= 1;
    send(&router, &changed).await.problem(ProblemType::DigestMismatch);
    let mut shorter = signed.clone();
    shorter.body_mut().pop();
    assert!(send(&router, &shorter).await.status.is_client_error());
    let again = devices[0].sign(upload(&assignment, devices[0].id, &body), t.now());
    assert_eq!(send(&router, &again).await.read::<Receipt>().sha256, sha256(&body));
    // The signature does not cover another attempt or another participant's place.
    let mut moved = devices[0].sign(upload(&assignment, devices[0].id, &body), t.now());
    moved.headers_mut().insert(wire::headers::ATTEMPT, "2".parse().unwrap());
    send(&router, &moved).await.problem(ProblemType::SignatureInvalid);
    let others = devices[1].sign(upload(&assignment, devices[0].id, &body), t.now());
    send(&router, &others).await.problem(ProblemType::Forbidden);
}

#[tokio::test]
async fn participants_have_rates_of_their_own_behind_one_address() {
    let mut config = config();
    config.http.participant_rate = 2;
    config.http.address_rate = 2;
    config.http.burst_s = 5;
    let t = TestCoordinator::with(&config).await;
    let (a, b) = (Device::enroll(&t, "a").await, Device::enroll(&t, "b").await);
    let router = t.inner.signed_router();
    t.advance(Duration::from_secs(60));
    for _ in 0..10 {
        assert_eq!(send(&router, &a.check_in(t.now())).await.status, 200);
    }
    send(&router, &a.check_in(t.now())).await.problem(ProblemType::RateLimited);
    // Forgeries are counted against the balancer's address, without affecting participants.
    let mut forged = a.check_in(t.now());
    forged.headers_mut().insert("content-type", "text/plain".parse().unwrap());
    for _ in 0..10 {
        send(&router, &forged).await.problem(ProblemType::SignatureInvalid);
    }
    send(&router, &forged).await.problem(ProblemType::RateLimited);
    let poll = b.check_in(t.now());
    assert_eq!(send(&router, &poll).await.status, 200);
    send(&router, &poll).await.problem(ProblemType::SignatureReplayed);
    // A misdated request still gets the time, at its own rate; this was the first.
    let misdated = b.check_in(Timestamp(t.now().0 - 3_600_000));
    for _ in 0..9 {
        let refused = send(&router, &misdated).await;
        refused.problem(ProblemType::SignatureTime);
        assert!(told(&refused.headers).to_str().unwrap().starts_with(&t.now().0.to_string()));
    }
    send(&router, &misdated).await.problem(ProblemType::RateLimited);
    assert_eq!(send(&router, &b.check_in(t.now())).await.status, 200, "whoever repeats those cannot use up its rate");
}

/// A token created by an operator for this participant's re-enrolment.
async fn token_for(t: &TestCoordinator, device: &Device) -> String {
    let reply = t.post(&t.operator, route::ENROLLMENT_TOKENS, &json!({ "participant": device.id })).await;
    reply.json()["token"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_token_for_a_participant_needs_its_key_where_a_balancer_reads() {
    let t = TestCoordinator::start().await;
    let (a, b) = (Device::enroll(&t, "a").await, Device::enroll(&t, "b").await);
    let router = t.inner.signed_router();
    t.advance(Duration::from_secs(8 * 24 * 3600));
    let (key, csr) = key_and_csr();
    let enroll = |token: String| {
        let body = json!({ "token": token, "csr_pem": csr }).to_string();
        Request::post(route::ENROLL).header("content-type", "application/json").body(body.into_bytes()).unwrap()
    };
    let token = token_for(&t, &a).await;
    // The balancer reads the token, drops or replaces the signature, and requests a certificate for its own key.
    for stolen in [enroll(token.clone()), b.sign(enroll(token.clone()), t.now())] {
        let detail = send(&router, &stolen).await.problem(ProblemType::EnrollmentRefused);
        assert!(detail.contains("http.listen"), "{detail}");
    }
    // The certificate has expired, but its key still authenticates; the token is unused.
    let back = Device::new(&key, &send(&router, &a.sign(enroll(token), t.now())).await.read());
    assert_eq!(back.id, a.id);
    send(&router, &back.check_in(t.now())).await.read::<CheckInReply>();
    // This ends the previous key.
    let token = token_for(&t, &back).await;
    send(&router, &a.sign(enroll(token), t.now())).await.problem(ProblemType::EnrollmentRefused);
    // A participant without its key enrols over direct TLS.
    let (_, csr) = key_and_csr();
    let body = json!({ "token": token_for(&t, &b).await, "csr_pem": csr });
    assert_eq!(t.post(&Who::Nobody, route::ENROLL, &body).await.read::<EnrollReply>().participant, b.id);
}

/// An authority for devices, and a device certificate valid around the test's time.
fn company(folder: &std::path::Path) -> (std::path::PathBuf, impl Fn(u128) -> (KeyPair, Certificate)) {
    let key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    let file = folder.join("company.pem");
    std::fs::write(&file, params.self_signed(&key).unwrap().pem()).unwrap();
    let issuer = Issuer::new(params, key);
    let issue = move |n: u128| {
        let key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
        let mut params = CertificateParams::new(vec![]).unwrap();
        let name = format!("{PARTICIPANT_URN}{}", ParticipantId(uuid::Uuid::from_u128(n)));
        params.subject_alt_names = vec![SanType::URI(name.as_str().try_into().unwrap())];
        let certificate = params.signed_by(&key, &issuer).unwrap();
        (key, certificate)
    };
    (file, issue)
}

#[tokio::test]
async fn who_has_a_certificate_already_signs_its_enrolment_with_that_key() {
    let folder = tempfile::tempdir().unwrap();
    let (file, issue) = company(folder.path());
    let mut config = config();
    config.identity.members_ca_certificate_file = Some(file);
    let t = TestCoordinator::with(&config).await;
    let router = t.inner.signed_router();
    let device = |(key, certificate): &(KeyPair, Certificate), n| {
        let id = ParticipantId(uuid::Uuid::from_u128(n));
        let key = RequestKey::new(&key.serialize_der(), certificate.der()).unwrap();
        Device { id, who: Who::Nobody, key }
    };
    let (first, second) = (issue(1), issue(2));
    let token = t.enrollment_token().await;
    let body = json!({ "token": token, "certificate_pem": first.1.pem() }).to_string();
    let enroll =
        Request::post(route::ENROLL).header("content-type", "application/json").body(body.into_bytes()).unwrap();
    // The certificate is public: its bearer must prove possession of the key.
    let detail = send(&router, &enroll).await.problem(ProblemType::Unauthenticated);
    assert!(detail.contains("sign the request"), "{detail}");
    let another = device(&second, 2).sign(enroll.clone(), t.now());
    send(&router, &another).await.problem(ProblemType::Unauthenticated);
    let own = device(&first, 1);
    send(&router, &own.check_in(t.now())).await.problem(ProblemType::Unauthenticated);
    let reply: EnrollReply = send(&router, &own.sign(enroll, t.now())).await.read();
    assert_eq!(reply.participant, own.id);
    send(&router, &own.check_in(t.now())).await.read::<CheckInReply>();
}
