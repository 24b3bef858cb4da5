//! Requests rejected before their body was read.

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use wire::route;

use crate::support::config;
use crate::support::server::serve;

/// An unauthenticated request to an operator route, with half of its body.
async fn half_sent(
    server: &crate::support::server::Server,
    length: usize,
) -> (h2::client::ResponseFuture, h2::SendStream<Bytes>, Bytes) {
    let (client, connection) = h2::client::handshake(server.shake_hands("h2", None).await).await.unwrap();
    tokio::spawn(connection);
    let request = Request::post(server.url(route::TASKS)).header("content-type", "application/json");
    let request = request.header("content-length", length).body(()).unwrap();
    let (response, mut body) = client.ready().await.unwrap().send_request(request, false).unwrap();
    let mut whole = Bytes::from(vec![b' '; length]);
    body.send_data(whole.split_to(length / 2), false).unwrap();
    (response, body, whole)
}

#[tokio::test]
async fn a_small_body_is_read_to_its_end_before_the_request_is_refused() {
    let server = serve(&config()).await;
    for length in [2, 1000, 60_000] {
        let (response, mut body, rest) = half_sent(&server, length).await;
        // Early responses and resets must not come first: clients treat a reset as the end of everything.
        let early = std::future::poll_fn(|cx| body.poll_reset(cx));
        let early = tokio::time::timeout(Duration::from_millis(200), early).await;
        assert!(early.is_err(), "{length}: {early:?}");
        body.send_data(rest, true).unwrap();
        assert_eq!(response.await.unwrap().status(), 401, "{length}");
    }
    let http1 = server.builder(None).http1_only().build().unwrap();
    let reply = http1.post(server.url(route::TASKS)).body(vec![b' '; 60_000]).send().await.unwrap();
    assert_eq!(reply.status(), 401);
}

#[tokio::test]
async fn a_large_body_is_not_waited_for() {
    let server = serve(&config()).await;
    let (response, _body, _rest) = half_sent(&server, 200_000).await;
    assert_eq!(response.await.unwrap().status(), 401);
}

#[tokio::test]
async fn large_refused_body_ends_without_a_reset() {
    let server = serve(&config()).await;
    let (response, mut body, rest) = half_sent(&server, 200_000).await;
    assert_eq!(response.await.unwrap().status(), 401);
    let reset = std::future::poll_fn(|cx| body.poll_reset(cx));
    let reset = tokio::time::timeout(Duration::from_millis(200), reset).await;
    assert!(reset.is_err(), "the rest is still read: {reset:?}");
    body.send_data(rest, true).unwrap();

    // Some megabytes exceed all buffers on the way, so an early close is detected.
    let chunk = vec![b' '; 1 << 20];
    for chunks in [1, 8, 32] {
        let mut stream = server.shake_hands("http/1.1", None).await;
        let length = chunks * chunk.len();
        let path = route::TASKS;
        let head = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        for _ in 0..chunks {
            stream.write_all(&chunk).await.unwrap();
        }
        stream.flush().await.unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 401", "{chunks} MiB");
    }
}
