//! Certificates of our authority that no participant has, or has no longer.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use http::Request;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, PKCS_ED25519, SanType};
use serde_json::{Value, json};
use wire::ParticipantId;
use wire::participant::CheckInReply;
use wire::route;

use super::slots::linger;
use crate::support::server::{Server, serve};
use crate::support::{config, small_task};

async fn get(server: &Server, client: &SendRequest<Bytes>, path: &str) -> http::StatusCode {
    let request = Request::get(server.url(path)).body(()).unwrap();
    let mut client = client.clone().ready().await.unwrap();
    client.send_request(request, true).unwrap().0.await.unwrap().status()
}

async fn post(server: &Server, client: &SendRequest<Bytes>, path: &str, body: &Value) -> ResponseFuture {
    let request = Request::post(server.url(path)).header("content-type", "application/json").body(()).unwrap();
    let (response, mut stream) = client.clone().ready().await.unwrap().send_request(request, false).unwrap();
    stream.send_data(body.to_string().into(), true).unwrap();
    response
}

fn check_in(wait_ms: u64) -> Value {
    json!({ "task": "small", "examples": 10, "wait_ms": wait_ms })
}

#[tokio::test]
async fn a_replaced_certificate_ends_no_connection_of_the_participant_it_names() {
    let server = serve(&config()).await;
    server.operate(route::TASKS, &json!({ "spec": small_task() })).await;
    let (_, replaced) = server.enroll().await;
    let present = server.renew(&replaced).await;
    let other = server.client(Some(&server.enroll().await.1));
    let (holder, connected) = linger(&server, Some(&present)).await;
    // From the first use of the present one on, the one before counts no longer.
    assert_eq!(post(&server, &holder, route::CHECK_IN, &check_in(0)).await.await.unwrap().status(), 200);
    let poll = post(&server, &holder, route::CHECK_IN, &check_in(10_000)).await;
    let mut thief = Vec::new();
    for _ in 0..17 {
        let (client, ended) = linger(&server, Some(&replaced)).await;
        assert_eq!(get(&server, &client, route::HEALTHZ).await, 200);
        thief.push((client, ended));
    }
    assert!(!connected.is_finished(), "the holder is served yet");
    server.holds("the holder alone is a member", |held| (held.members, held.strangers) == (1, 17)).await;
    let others = async {
        loop {
            server.check_in(&other).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let reply = tokio::select! {
        reply = poll => reply.unwrap(),
        () = others => unreachable!("endless"),
    };
    let (head, mut body) = reply.into_parts();
    assert_eq!(head.status, 200);
    let mut told = Vec::new();
    while let Some(bytes) = body.data().await {
        told.extend_from_slice(&bytes.unwrap());
    }
    assert!(matches!(serde_json::from_slice(&told).unwrap(), CheckInReply::Assigned(_)));
    assert!(!connected.is_finished());
}

#[tokio::test]
async fn certificates_that_count_no_longer_are_strangers() {
    let mut config = config();
    config.http.stranger_lifetime_ms = 300;
    let server = serve(&config).await;
    let (_, expired) = server.enroll().await;
    server.clock.advance(Duration::from_secs(8 * 24 * 3600));
    let (id, revoked) = server.enroll().await;
    server.operate(&route::fill(route::PARTICIPANT_REVOKE, &[&id]), &json!({})).await;
    let (_, replaced) = server.enroll().await;
    let present = server.renew(&replaced).await;
    let (holder, connected) = linger(&server, Some(&present)).await;
    // Whoever has the present one has not used it yet: both count.
    let (before, connected_before) = linger(&server, Some(&replaced)).await;
    assert_eq!(get(&server, &before, route::HEALTHZ).await, 200);
    server.holds("both are a member's", |held| held.members == 2).await;
    drop((before, connected_before));
    assert_eq!(post(&server, &holder, route::CHECK_IN, &check_in(0)).await.await.unwrap().status(), 200);
    server.holds("the newest is left", |held| held.members == 1).await;
    for (what, identity) in [("expired", &expired), ("revoked", &revoked), ("replaced", &replaced)] {
        let (client, ended) = linger(&server, Some(identity)).await;
        let reply = post(&server, &client, route::CHECK_IN, &check_in(0)).await.await.unwrap();
        assert!([401, 403].contains(&reply.status().as_u16()), "{what}: {}", reply.status());
        assert_eq!(server.running.held().members, 1, "{what}");
        ended.await.unwrap().unwrap();
    }
    assert!(!connected.is_finished());
}

/// An authority elsewhere that gave devices their certificates.
struct Company(Issuer<'static, KeyPair>);

impl Company {
    fn new(file: &Path) -> Self {
        let key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "Company CA");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        std::fs::write(file, params.self_signed(&key).unwrap().pem()).unwrap();
        Self(Issuer::new(params, key))
    }

    /// The certificate of a device, and that after its key.
    fn issue(&self, n: u8) -> (String, String) {
        let key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
        let urn = format!("urn:tributary:participant:{}", ParticipantId(uuid::Uuid::from_bytes([n; 16])));
        let mut params = CertificateParams::default();
        params.subject_alt_names = vec![SanType::URI(urn.as_str().try_into().unwrap())];
        let pem = params.signed_by(&key, &self.0).unwrap().pem();
        (pem.clone(), key.serialize_pem() + &pem)
    }
}

#[tokio::test]
async fn a_certificate_that_was_never_admitted_is_a_strangers_until_a_token_admits_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("company.pem");
    let company = Company::new(&file);
    let mut config = config();
    config.http.stranger_lifetime_ms = 3000;
    config.http.connections_max = 4;
    config.identity.members_ca_certificate_file = Some(file);
    let server = serve(&config).await;
    server.operate(route::TASKS, &json!({ "spec": small_task() })).await;
    let token = server.operate(route::ENROLLMENT_TOKENS, &json!({})).await["token"].clone();
    let (pem, identity) = company.issue(1);
    let (member, connected) = linger(&server, Some(&identity)).await;
    assert_eq!(post(&server, &member, route::CHECK_IN, &check_in(0)).await.await.unwrap().status(), 401);
    assert_eq!(server.running.held().members, 0);
    // It enrols and goes on where it is.
    let enrolment = json!({ "token": token, "certificate_pem": pem });
    assert_eq!(post(&server, &member, route::ENROLL, &enrolment).await.await.unwrap().status(), 200);
    assert_eq!(post(&server, &member, route::CHECK_IN, &check_in(0)).await.await.unwrap().status(), 200);
    assert_eq!(server.running.held().members, 1);
    let mut strangers = Vec::new();
    for n in 2..20 {
        let (client, ended) = linger(&server, Some(&company.issue(n).1)).await;
        assert_eq!(get(&server, &client, route::HEALTHZ).await, 200);
        assert_eq!(server.running.held().members, 1, "{n}");
        strangers.push((client, ended));
    }
    // Another connection of the participant finds a place, and needs nothing said.
    let (_another, _connected) = linger(&server, Some(&identity)).await;
    server.holds("both are known", |held| held.members == 2).await;
    for (_client, ended) in strangers {
        ended.await.unwrap().unwrap();
    }
    assert!(!connected.is_finished(), "who was admitted stays");
    assert_eq!(post(&server, &member, route::CHECK_IN, &check_in(0)).await.await.unwrap().status(), 200);
}

#[tokio::test]
async fn a_members_place_ends_with_its_certificate() {
    let mut config = config();
    config.http.stranger_lifetime_ms = 300;
    let server = serve(&config).await;
    let (id, revoked) = server.enroll().await;
    let (_, replaced) = server.enroll().await;
    let present = server.renew(&replaced).await;
    let mut idle = Vec::new();
    for identity in [&revoked, &replaced] {
        idle.push(linger(&server, Some(identity)).await);
    }
    server.holds("both are known", |held| held.members == 2).await;
    server.operate(&route::fill(route::PARTICIPANT_REVOKE, &[&id]), &json!({})).await;
    let (holder, connected) = linger(&server, Some(&present)).await;
    assert_eq!(post(&server, &holder, route::CHECK_IN, &check_in(0)).await.await.unwrap().status(), 200);
    // They ask nothing, so nothing is refused them: they are looked at again.
    server.holds("the present one is left", |held| held.members == 1).await;
    for (_client, ended) in idle {
        ended.await.unwrap().unwrap();
    }
    assert!(!connected.is_finished());
    let (_, expiring) = server.enroll().await;
    let (_client, ended) = linger(&server, Some(&expiring)).await;
    server.holds("it is known", |held| held.members == 2).await;
    server.clock.advance(Duration::from_secs(8 * 24 * 3600));
    ended.await.unwrap().unwrap();
}
