//! Tests that need a real connection: TLS 1.3, client certificates, shutdown.

use std::time::Duration;

use futures_util::StreamExt as _;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use wire::participant::Receipt;
use wire::problem::{Problem, ProblemType};
use wire::route;

use crate::support::server::serve;
use crate::support::{config, input, sha256, small_task};

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
    // A client of another CA does not trust this server.
    assert!(other.client(None).get(server.url(route::HEALTHZ)).send().await.is_err());
    assert_eq!(server.client(None).get(server.url(route::HEALTHZ)).send().await.unwrap().status(), 200);
}

#[tokio::test]
async fn whoever_shakes_hands_and_says_nothing_is_not_waited_for() {
    let mut config = config();
    config.http.header_timeout_ms = 200;
    let server = serve(&config).await;
    for (protocol, said) in [
        ("http/1.1", ""),
        ("http/1.1", "GET /healthz HTTP/1.1\r\nhost"),
        // And between two requests.
        ("http/1.1", "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"),
        ("h2", ""),
        ("h2", "PRI * "),
    ] {
        let mut stream = server.shake_hands(protocol, None).await;
        stream.write_all(said.as_bytes()).await.unwrap();
        stream.flush().await.unwrap();
        let mut answer = Vec::new();
        let ended = tokio::time::timeout(Duration::from_secs(5), stream.read_to_end(&mut answer)).await;
        assert!(ended.is_ok(), "{protocol} {said:?}: the connection is still open");
    }
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
    let work = server.assigned(&client_a, &client_b).await;
    assert_eq!(json!(work.task), task);
    let body = input([1, 2, 3]);
    let (first, second) = (body[..8].to_vec(), body[8..].to_vec());
    let (release, released) = tokio::sync::oneshot::channel::<()>();
    let stream = futures_util::stream::once(async move { Ok::<_, std::io::Error>(first) }).chain(
        futures_util::stream::once(async move {
            released.await.unwrap();
            Ok(second)
        }),
    );
    let upload = server.upload(&client_a, &work, a.0, &body).body(reqwest::Body::wrap_stream(stream));
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
    let kept = store.read("test", |tx| Box::pin(async move { tx.admitted(round.attempt(1), a.0).await })).await;
    assert!(kept.map_err(|error: store::StoreError| error.to_string()).unwrap().is_some());
}

#[tokio::test]
async fn an_update_that_is_far_too_large_gets_a_clear_answer_in_either_version_of_http() {
    let server = serve(&config()).await;
    server.operate(route::TASKS, &json!({ "spec": small_task() })).await;
    let (a, b) = (server.enroll().await, server.enroll().await);
    let http2 = server.client(Some(&a.1));
    let work = server.assigned(&http2, &server.client(Some(&b.1))).await;
    let http1 = server.builder(Some(&a.1)).http1_only().build().unwrap();
    for client in [http1, http2] {
        let reply = server.upload(&client, &work, a.0, &[0; 160]).send().await.unwrap();
        assert_eq!(kind(reply).await, Some(ProblemType::WrongLength));
    }
}

#[tokio::test]
async fn after_a_restart_everybody_is_known_and_no_accepted_update_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config();
    config.database.url = format!("sqlite:{}", folder.path().join("rows.db").display());
    config.blobs.url = format!("file:{}", folder.path().join("blobs").display());
    config.identity.ca_certificate_file = folder.path().join("ca.pem");
    config.identity.ca_key_file = folder.path().join("ca-key.pem");
    let server = serve(&config).await;
    server.operate(route::TASKS, &json!({ "spec": small_task() })).await;
    let (a, b) = (server.enroll().await, server.enroll().await);
    let client_a = server.client(Some(&a.1));
    let work = server.assigned(&client_a, &server.client(Some(&b.1))).await;
    let upload = server.upload(&client_a, &work, a.0, &input([1, 2, 3]));
    let receipt: Receipt = upload.send().await.unwrap().json().await.unwrap();
    drop(client_a);
    server.running.shutdown().await;

    let server = serve(&config).await;
    let again = server.upload(&server.client(Some(&a.1)), &work, a.0, &input([1, 2, 3]));
    assert_eq!(again.send().await.unwrap().json::<Receipt>().await.unwrap(), receipt);
    let upload = server.upload(&server.client(Some(&b.1)), &work, b.0, &input([3, 2, 1]));
    assert_eq!(upload.send().await.unwrap().status(), 200);
    let watch = server.url("/v1/tasks/small/rounds/1?after_state=COLLECTING&wait_ms=10000");
    let mut state = json!("COLLECTING");
    while state == "COLLECTING" || state == "AGGREGATING" {
        let reply = server.client(None).get(&watch).bearer_auth(&server.token).send().await.unwrap();
        let round: Value = reply.json().await.unwrap();
        state = round["state"].clone();
        assert_eq!(round["reported"], 2);
    }
    assert_eq!(state, "COMPLETED");
    server.running.shutdown().await;
}
