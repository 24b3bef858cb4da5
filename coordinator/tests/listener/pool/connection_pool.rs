//! Certificates of our authority that are unknown or replaced.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use federation::time::Clock as _;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use h2::client::{ResponseFuture, SendRequest};
use http::Request;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, PKCS_ED25519, SanType};
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject as _;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use wire::ParticipantId;
use wire::participant::CheckInReply;
use wire::route;
use wire::signature::RequestKey;

use super::slots::linger;
use crate::support::server::{Server, serve};
use crate::support::{config, sha256, small_task};

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
    // The first use of the present certificate ends the previous one.
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
    // The new certificate is unused: both are valid.
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

/// An external authority that issued the devices' certificates.
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

    /// A device's certificate alone, and after its key.
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
    // The device enrols and continues on the same connection.
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
    // Another connection of the participant gets a slot without a request.
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
    // Idle connections are checked again without a request.
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

/// Sends bytes on a balancer's connection; returns head and body of the response.
async fn exchange(balancer: &mut TcpStream, said: &[u8]) -> String {
    balancer.write_all(said).await.unwrap();
    let mut answer = Vec::new();
    loop {
        let mut piece = [0; 4096];
        let read = balancer.read(&mut piece).await.unwrap();
        assert!(read > 0, "the connection was closed after {:?}", String::from_utf8_lossy(&answer));
        answer.extend_from_slice(&piece[..read]);
        let text = String::from_utf8_lossy(&answer);
        if let Some((head, body)) = text.split_once("\r\n\r\n")
            && let Some((_, length)) = head.split_once("content-length: ")
            && length.split("\r\n").next().unwrap().parse() == Ok(body.len())
        {
            return text.into_owned();
        }
    }
}

#[tokio::test]
async fn a_balancers_connections_are_nobodys_and_stay() {
    let mut config = config();
    config.http.signed_listen = Some("127.0.0.1:0".parse().unwrap());
    (config.http.header_timeout_ms, config.http.stranger_lifetime_ms) = (200, 200);
    (config.http.strangers_per_address, config.http.connections_per_participant) = (2, 1);
    let server = serve(&config).await;
    let address = server.running.signed_address().unwrap();
    let healthy = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let mut balancer = Vec::new();
    for _ in 0..6 {
        let mut connection = TcpStream::connect(address).await.unwrap();
        assert!(exchange(&mut connection, healthy).await.starts_with("HTTP/1.1 200 "));
        balancer.push(connection);
    }
    tokio::time::sleep(Duration::from_millis(600)).await;
    // Each connection carries requests of several participants, and each participant uses several connections.
    let devices = [server.enroll().await, server.enroll().await];
    for (nonce, connection) in (0..).zip(&mut balancer) {
        for (_, identity) in &devices {
            let answer = exchange(connection, &signed_check_in(&server, identity, nonce, 0)).await;
            assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        }
        assert!(exchange(connection, healthy).await.starts_with("HTTP/1.1 200 "));
    }
    // A connection carries sequential requests, so HTTP/2 is rejected.
    let mut other = TcpStream::connect(address).await.unwrap();
    other.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    let _ = other.read_to_end(&mut answer).await;
    assert!(!answer.starts_with(&[0, 0]), "no frame of HTTP/2: {answer:?}");
}

#[tokio::test]
async fn a_balancers_requests_have_whole_line_ends_and_one_host() {
    let mut config = config();
    config.http.signed_listen = Some("127.0.0.1:0".parse().unwrap());
    let server = serve(&config).await;
    let address = server.running.signed_address().unwrap();
    let (_, identity) = server.enroll().await;
    let mut good = TcpStream::connect(address).await.unwrap();
    let signed = |nonce| signed_check_in(&server, &identity, nonce, 0);
    for nonce in 0..2 {
        assert!(exchange(&mut good, &signed(nonce)).await.starts_with("HTTP/1.1 200 "));
    }
    let text = String::from_utf8(signed(9)).unwrap();
    for wrong in [
        "GET /healthz HTTP/1.1\nhost: localhost\r\n\r\n".to_owned(),
        "GET /healthz HTTP/1.1\r\nhost: localhost\n\r\n".to_owned(),
        "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\n".to_owned(),
        "\nGET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n".to_owned(),
        "GET /healthz HTTP/1.1\r\nhost: localhost\r\nhost: evil.example\r\n\r\n".to_owned(),
        "GET /healthz HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\ncontent-length: 0\r\n\r\n".to_owned(),
        text.replacen("host: localhost\r\n", "host: localhost\n", 1),
        text.replacen("host: localhost\r\n", "host: localhost\r\nhost: localhost\r\n", 1),
        text.replacen("host: localhost\r\n", "host: localhost\r\nx: y\nhost: evil.example\r\n", 1),
    ] {
        // A fresh connection, and a used one.
        let fresh = TcpStream::connect(address).await.unwrap();
        let mut used = TcpStream::connect(address).await.unwrap();
        assert!(exchange(&mut used, b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await.contains(" 200 "));
        for mut connection in [fresh, used] {
            let answer = exchange(&mut connection, wrong.as_bytes()).await;
            assert!(answer.starts_with("HTTP/1.1 400 "), "{wrong:?}: {answer}");
        }
    }
    assert!(exchange(&mut good, &signed(3)).await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn one_participant_cannot_take_all_of_a_balancers_connections() {
    let mut config = config();
    config.http.signed_listen = Some("127.0.0.1:0".parse().unwrap());
    (config.http.connections_max, config.http.connections_per_participant) = (4, 2);
    config.http.poll_max_ms = 60_000;
    let server = serve(&config).await;
    let address = server.running.signed_address().unwrap();
    let (many, one) = (server.enroll().await.1, server.enroll().await.1);
    let mut polls = FuturesUnordered::new();
    for nonce in 0..4 {
        let mut connection = TcpStream::connect(address).await.unwrap();
        connection.write_all(&signed_check_in(&server, &many, nonce, 60_000)).await.unwrap();
        polls.push(async move {
            let read = connection.read(&mut [0]).await.unwrap_or(0);
            (connection, read)
        });
    }
    // Each poll above the limit ends the participant's oldest, as its connections do with direct TLS.
    for _ in 0..2 {
        let (_, read) = polls.next().await.unwrap();
        assert_eq!(read, 0, "no answer, and the end");
    }
    for nonce in 10.. {
        let mut connection = TcpStream::connect(address).await.unwrap();
        let answer = exchange(&mut connection, &signed_check_in(&server, &one, nonce, 0)).await;
        // The slots of the ended polls may be held for a moment.
        if answer.starts_with("HTTP/1.1 200 ") {
            break;
        }
        assert!(answer.starts_with("HTTP/1.1 503 ") && nonce < 200, "{answer}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    drop(polls);
}

#[tokio::test]
async fn strangers_share_a_few_requests_behind_a_balancer() {
    let mut config = config();
    config.http.signed_listen = Some("127.0.0.1:0".parse().unwrap());
    (config.http.strangers_max, config.http.strangers_per_address) = (2, 2);
    let server = serve(&config).await;
    let address = server.running.signed_address().unwrap();
    let enrol = |more: &str, length: usize| {
        let head = format!("POST {} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n", route::ENROLL);
        format!("{head}content-length: {length}\r\n{more}\r\n").into_bytes()
    };
    let mut slow = Vec::new();
    for _ in 0..2 {
        let mut connection = TcpStream::connect(address).await.unwrap();
        connection.write_all(&enrol("expect: 100-continue\r\n", 2)).await.unwrap();
        let mut told = [0; 25];
        connection.read_exact(&mut told).await.unwrap();
        assert_eq!(&told, b"HTTP/1.1 100 Continue\r\n\r\n", "its body is awaited");
        slow.push(connection);
    }
    let mut balancer = TcpStream::connect(address).await.unwrap();
    let answer = exchange(&mut balancer, &[enrol("", 2), b"{}".to_vec()].concat()).await;
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("retry-after: "), "{answer}");
    // Participants and the balancer's own checks do not wait for them.
    let identity = server.enroll().await.1;
    let healthy = |path: &str| format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").into_bytes();
    for said in [signed_check_in(&server, &identity, 1, 0), healthy(route::HEALTHZ), healthy(route::READYZ)] {
        let answer = exchange(&mut balancer, &said).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
    let answer = exchange(&mut slow[0], b"{}").await;
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    let answer = exchange(&mut balancer, &[enrol("", 2), b"{}".to_vec()].concat()).await;
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
}

/// A check-in signed with this key and certificate.
fn signed_check_in(server: &Server, identity: &str, nonce: u8, wait_ms: u64) -> Vec<u8> {
    let key = PrivateKeyDer::from_pem_slice(identity.as_bytes()).unwrap();
    let chain = &identity[identity.find("-----BEGIN CERTIFICATE").unwrap()..];
    let own = wire::certificate::chain_der(chain).unwrap().swap_remove(0);
    let key = RequestKey::new(key.secret_der(), &own).unwrap();
    let body = check_in(wait_ms).to_string();
    let request = http::Request::post(route::CHECK_IN).header("content-type", "application/json").body(()).unwrap();
    let (mut parts, ()) = request.into_parts();
    key.sign(&mut parts, "localhost", Some(sha256(body.as_bytes())), server.clock.now(), [nonce; 16]);
    let mut text =
        format!("POST {} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n", route::CHECK_IN, body.len());
    for (name, value) in &parts.headers {
        text.push_str(&format!("{name}: {}\r\n", value.to_str().unwrap()));
    }
    (text + "\r\n" + &body).into_bytes()
}
