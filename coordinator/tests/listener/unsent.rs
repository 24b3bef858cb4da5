//! Clients that do not read their responses.

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use http::{Method, Request, StatusCode};
use serde_json::json;
use tokio::task::JoinHandle;
use wire::route;

use crate::support::server::{Server, serve};
use crate::support::{config, small_task};

/// An HTTP/2 connection whose peer answers PINGs but grants streams no window.
struct Deaf {
    client: SendRequest<Bytes>,
    ended: JoinHandle<Result<(), h2::Error>>,
}

impl Deaf {
    async fn connect(server: &Server, identity: Option<&str>) -> Self {
        let stream = server.shake_hands("h2", identity).await;
        let mut builder = h2::client::Builder::new();
        builder.initial_window_size(0);
        let (client, connection) = builder.handshake(stream).await.unwrap();
        Self { client, ended: tokio::spawn(connection) }
    }

    /// Requests a path repeatedly, and waits only for response heads.
    async fn ask(&self, server: &Server, path: &str, times: usize) -> Vec<http::Response<h2::RecvStream>> {
        let mut asked: Vec<ResponseFuture> = Vec::new();
        for _ in 0..times {
            let Ok(mut client) = self.client.clone().ready().await else { break };
            let request = Request::builder().method(Method::GET).uri(server.url(path)).body(()).unwrap();
            asked.push(client.send_request(request, true).unwrap().0);
        }
        let answered = futures_util::future::join_all(asked).await;
        answered.into_iter().filter_map(Result::ok).collect()
    }
}

fn ok(answers: &[http::Response<h2::RecvStream>]) -> usize {
    answers.iter().filter(|answer| answer.status() == StatusCode::OK).count()
}

#[tokio::test]
async fn unread_answers_are_bounded_for_each_connection_and_each_address_and_given_up() {
    let mut config = config();
    config.http.unread_timeout_ms = 500;
    config.http.address_rate = 10_000;
    config.http.unsent_max_bytes = 16 << 20;
    let server = serve(&config).await;
    let size = server.client(None).get(server.url(route::OPENAPI)).send().await.unwrap().bytes().await.unwrap().len();
    let (of_connection, of_peer) = (768 << 10, 1 << 20);
    let mut deaf = Vec::new();
    for _ in 0..10 {
        deaf.push(Deaf::connect(&server, None).await);
    }
    // As many streams as a connection may have, so that no stream waits for another.
    let mut answers = Vec::new();
    for one in &deaf {
        let answered = one.ask(&server, route::OPENAPI, 32).await;
        assert!(ok(&answered) * size <= of_connection, "{} answers of {size} bytes", ok(&answered));
        answers.push(answered);
    }
    let given: usize = answers.iter().map(|answers| ok(answers)).sum();
    assert!(given * size > of_peer - size && given * size <= of_peer, "{given} answers of {size} bytes");
    let refused = answers.iter().flatten().find(|answer| answer.status() == StatusCode::SERVICE_UNAVAILABLE).unwrap();
    assert!(refused.headers().contains_key("retry-after"));
    // A peer with unread data loses its connection, although it answers every PING.
    server.holds("nothing is unsent", |held| held.unsent_bytes == 0).await;
    for one in deaf.into_iter().zip(&answers).filter(|(_, answers)| ok(answers) > 0).map(|(one, _)| one) {
        one.ended.await.unwrap().unwrap_err();
    }
}

#[tokio::test]
async fn a_participant_that_reads_no_download_is_cut_off_and_another_is_served_meanwhile() {
    let mut config = config();
    config.http.unread_timeout_ms = 3000;
    config.http.unsent_max_bytes = 16 << 20;
    let server = serve(&config).await;
    let mut task = small_task();
    task["model"]["tensors"][0]["shape"] = json!([100_000]);
    server.operate(route::TASKS, &json!({ "spec": task })).await;
    let (deaf, honest) = (server.enroll().await.1, server.enroll().await.1);
    let path = "/v1/tasks/small/models/0/parameters";
    let mut connections = Vec::new();
    for _ in 0..8 {
        connections.push(Deaf::connect(&server, Some(&deaf)).await);
    }
    let asked = connections.iter().map(|connection| connection.ask(&server, path, 64));
    let answers = futures_util::future::join_all(asked).await;
    // Of 512 requested downloads of 400 kB, 32 are sent, within the memory limit of a peer.
    assert_eq!(answers.iter().map(|answers| ok(answers)).sum::<usize>(), 32);
    let refused = answers.iter().flatten().find(|answer| answer.status() == StatusCode::SERVICE_UNAVAILABLE).unwrap();
    assert!(refused.headers().contains_key("retry-after"));
    let held = server.running.held();
    assert!(held.members == 8 && held.unsent_bytes > 0 && held.unsent_bytes <= 1 << 20, "{held:?}");
    let model = server.client(Some(&honest)).get(server.url(path)).send().await.unwrap().bytes().await.unwrap();
    assert!(model.len() > 400_000);
    server.holds("nothing is unsent", |held| held.unsent_bytes == 0).await;
    for one in connections.into_iter().zip(&answers).filter(|(_, answers)| ok(answers) > 0).map(|(one, _)| one) {
        one.ended.await.unwrap().unwrap_err();
    }
}

#[tokio::test]
async fn what_a_replaced_certificate_leaves_unread_is_not_its_participants() {
    let mut config = config();
    config.http.unread_timeout_ms = 60_000;
    config.http.address_rate = 10_000;
    config.http.unsent_max_bytes = 16 << 20;
    let server = serve(&config).await;
    let (_, replaced) = server.enroll().await;
    let present = server.renew(&replaced).await;
    let client = server.client(Some(&present));
    // The newest has been used, which ends the previous one.
    server.check_in(&client).await;
    let mut deaf = Vec::new();
    for _ in 0..10 {
        let one = Deaf::connect(&server, Some(&replaced)).await;
        let answers = one.ask(&server, route::OPENAPI, 32).await;
        deaf.push((one, answers));
    }
    let refused = |answers: &[http::Response<h2::RecvStream>]| ok(answers) < answers.len();
    assert!(deaf.iter().all(|(_, answers)| refused(answers)), "they have taken what one peer may");
    for client in [client, server.client(Some(&present))] {
        let reply = client.get(server.url(route::OPENAPI)).send().await.unwrap();
        assert_eq!(reply.status(), StatusCode::OK);
    }
}
