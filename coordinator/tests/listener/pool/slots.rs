//! Connections without credentials, and more connections than slots.

use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use serde_json::json;
use tokio::task::JoinHandle;
use wire::problem::{Problem, ProblemType};
use wire::route;

use crate::support::server::{Server, serve};
use crate::support::{config, small_task};

/// An HTTP/2 connection that answers PINGs and sends no request.
pub(super) async fn linger(
    server: &Server,
    identity: Option<&str>,
) -> (SendRequest<Bytes>, JoinHandle<Result<(), h2::Error>>) {
    let stream = server.shake_hands("h2", identity).await;
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    (client, tokio::spawn(connection))
}

/// Asserts a rejection with `Retry-After`.
async fn is_told_to_come_back(reply: reqwest::Response) {
    assert_eq!(reply.status(), 503);
    assert!(reply.headers()["retry-after"].to_str().unwrap().parse::<u64>().unwrap() > 0);
    assert_eq!(reply.json::<Problem>().await.unwrap().problem_type(), Some(ProblemType::Unavailable));
}

#[tokio::test]
async fn strangers_that_take_every_place_keep_out_strangers_alone() {
    let mut config = config();
    config.http.connections_max = 4;
    (config.http.strangers_max, config.http.strangers_per_address) = (8, 8);
    config.http.health_listen = Some("127.0.0.1:0".parse().unwrap());
    let server = serve(&config).await;
    server.operate(route::TASKS, &json!({ "spec": small_task() })).await;
    let (_, identity) = server.enroll().await;
    server.holds("the operator is gone", |held| held.strangers + held.operators == 0).await;
    let mut strangers = Vec::new();
    for _ in 0..50 {
        strangers.push(linger(&server, None).await);
    }
    server.holds("all places are taken", |held| held.strangers == 8).await;
    // In both versions of HTTP, and every time.
    let http1 = server.builder(None).http1_only().build().unwrap();
    for client in [server.client(None), http1] {
        for _ in 0..3 {
            is_told_to_come_back(client.get(server.url(route::OPENAPI)).send().await.unwrap()).await;
        }
    }
    // Health checks, members and operators are still served.
    assert_eq!(server.client(None).get(server.url(route::HEALTHZ)).send().await.unwrap().status(), 200);
    let health = server.running.health_address().unwrap();
    for path in [route::HEALTHZ, route::READYZ, route::METRICS] {
        let reply = reqwest::get(format!("http://{health}{path}")).await.unwrap();
        assert_eq!(reply.status(), 200, "{path}");
    }
    assert_eq!(reqwest::get(format!("http://{health}{}", route::TASKS)).await.unwrap().status(), 404);
    assert_eq!(server.check_in(&server.client(Some(&identity))).await.status(), 200);
    let operator = server.client(None);
    for _ in 0..3 {
        let reply = operator.get(server.url(route::TASKS)).bearer_auth(&server.token).send().await.unwrap();
        assert_eq!(reply.status(), 200);
    }
    assert_eq!(server.running.held().operators, 1, "one connection for all three");
    // An invalid token is ignored.
    let reply = server.client(None).get(server.url(route::TASKS)).bearer_auth("guessed").send().await.unwrap();
    assert_eq!(reply.status(), 401);
    assert_eq!(server.running.held().operators, 1);
}

#[tokio::test]
async fn a_stranger_does_not_stay_and_an_operator_does() {
    let mut config = config();
    config.http.stranger_lifetime_ms = 300;
    let server = serve(&config).await;
    let (mut operator, operating) = linger(&server, None).await;
    let request =
        http::Request::get(server.url(route::TASKS)).header("authorization", format!("Bearer {}", server.token));
    let (response, _) = operator.send_request(request.body(()).unwrap(), true).unwrap();
    assert_eq!(response.await.unwrap().status(), 200);
    let stranger = linger(&server, None).await;
    stranger.1.await.unwrap().unwrap();
    server.holds("the stranger is gone", |held| held.strangers == 0).await;
    assert_eq!(server.running.held().operators, 1);
    let request = http::Request::get(server.url(route::HEALTHZ)).body(()).unwrap();
    assert_eq!(operator.send_request(request, true).unwrap().0.await.unwrap().status(), 200);
    assert!(!operating.is_finished());
}

#[tokio::test]
async fn participants_beyond_the_limit_are_told_when_to_come_back() {
    let mut config = config();
    config.http.connections_max = 2;
    let server = serve(&config).await;
    server.operate(route::TASKS, &json!({ "spec": small_task() })).await;
    let mut clients = Vec::new();
    for _ in 0..3 {
        clients.push(server.client(Some(&server.enroll().await.1)));
    }
    for client in &clients[..2] {
        assert_eq!(server.check_in(client).await.status(), 200);
    }
    is_told_to_come_back(server.check_in(&clients[2]).await).await;
    let operator = server.client(None).get(server.url(route::TASKS)).bearer_auth(&server.token);
    assert_eq!(operator.send().await.unwrap().status(), 200, "operators come first");
    drop(clients.remove(0));
    server.holds("a place is free", |held| held.members < 2).await;
    assert_eq!(server.check_in(&clients[1]).await.status(), 200);
}

#[tokio::test]
async fn one_participant_cannot_take_the_places_of_others() {
    let mut config = config();
    (config.http.connections_max, config.http.connections_per_participant) = (4, 2);
    let server = serve(&config).await;
    server.operate(route::TASKS, &json!({ "spec": small_task() })).await;
    let (greedy, honest) = (server.enroll().await.1, server.enroll().await.1);
    let mut held = Vec::new();
    for _ in 0..10 {
        held.push(linger(&server, Some(&greedy)).await);
    }
    server.holds("two of ten are left", |held| held.members == 2).await;
    for (client, ended) in held.drain(..8) {
        assert!(ended.await.unwrap().is_err(), "the oldest go");
        drop(client);
    }
    assert_eq!(server.check_in(&server.client(Some(&honest))).await.status(), 200);
    assert!(held.iter().all(|(_, ended)| !ended.is_finished()));
}

#[tokio::test]
async fn handshakes_that_are_never_finished_keep_nobody_out() {
    let mut config = config();
    config.http.header_timeout_ms = 300;
    let server = serve(&config).await;
    let mut silent = Vec::new();
    for _ in 0..100 {
        silent.push(tokio::net::TcpStream::connect(server.running.address()).await.unwrap());
    }
    server.holds("they have come", |held| held.arriving == 100).await;
    assert_eq!(server.client(None).get(server.url(route::HEALTHZ)).send().await.unwrap().status(), 200);
    server.holds("they are gone", |held| held.arriving == 0).await;
    tokio::time::sleep(Duration::ZERO).await;
    drop(silent);
}
