//! Event streams over real connections: resumed, compressed, and closed if unread.

use std::time::Duration;

use bytes::Bytes;
use federation::event::{EventKind, Fact, Subject};
use federation::time::Timestamp;
use http::{Request, StatusCode};
use serde_json::json;
use store::StoreError;
use wire::route;

use crate::support::server::{Server, serve};
use crate::support::sse::{Received, Told};
use crate::support::{config, small_task};

/// Reads enough of a stream after a position, then disconnects.
async fn read(server: &Server, client: &reqwest::Client, last: u64, is_enough: impl Fn(&[Told]) -> bool) -> Vec<Told> {
    let request = client.get(server.url("/v1/events?after=0")).bearer_auth(&server.token);
    let mut response = request.header("last-event-id", last.to_string()).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let (mut received, mut told) = (Received::default(), Vec::new());
    while !is_enough(&told) {
        match received.pop() {
            Some(next) => told.push(next),
            None => match tokio::time::timeout(Duration::from_secs(20), response.chunk()).await {
                Ok(Ok(Some(bytes))) => received.push(&bytes),
                ended => panic!("the stream ended: {ended:?}"),
            },
        }
    }
    told
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_is_continued_without_loss_or_repetition_while_rounds_run() {
    let mut config = config();
    // Request timeouts and rate limits do not end a stream.
    config.http.request_timeout_ms = 500;
    let server = serve(&config).await;
    server.operate(route::TASKS, &json!({ "spec": small_task() })).await;
    let changes = async {
        for _ in 0..30 {
            for action in ["pause", "resume"] {
                server.operate(&format!("/v1/tasks/small/{action}"), &json!({})).await;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let (of_two, of_one) = (server.client(None), server.builder(None).http1_only().build().unwrap());
    let reads = async {
        let (mut told, mut turn): (Vec<Told>, usize) = (Vec::new(), 0);
        let resumed = |told: &[Told]| told.iter().filter(|told| told.kind == "task_resumed").count();
        while resumed(&told) < 30 {
            let client = if turn.is_multiple_of(2) { &of_two } else { &of_one };
            let last = told.last().map_or(0, |told| told.id);
            let left = 30 - resumed(&told);
            let is_enough = |more: &[Told]| more.len() > turn % 5 || resumed(more) >= left;
            told.extend(read(&server, client, last, is_enough).await);
            turn += 1;
        }
        told
    };
    let (told, ()) = tokio::join!(reads, changes);
    assert!(told.iter().map(|told| told.id).eq(1..=told.len() as u64), "each once, in order");
    assert!(told.iter().any(|told| told.kind == "round_opened"));
    let held = server.running.held();
    assert!(held.unsent_bytes <= 64 << 10, "{held:?}");
    tokio::time::timeout(Duration::from_secs(10), server.running.shutdown()).await.expect("no stream holds it up");
}

const RESUMED: &str = "task_resumed";

/// A stream over its own connection.
struct Stream {
    response: reqwest::Response,
    received: Received,
    told: Vec<Told>,
}

impl Stream {
    async fn open(server: &Server, token: &str, path: &str, encoding: &str) -> Self {
        let request = server.client(None).get(server.url(path)).bearer_auth(token);
        let response = request.header("accept-encoding", encoding).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["vary"], "accept-encoding");
        let received = match response.headers().get("content-encoding") {
            Some(encoding) if encoding == "gzip" => Received::gzip(),
            Some(other) => panic!("{other:?}"),
            None => Received::default(),
        };
        Self { response, received, told: Vec::new() }
    }

    /// Reads the next chunk; false at the end of the stream.
    async fn read(&mut self) -> bool {
        let chunk = tokio::time::timeout(Duration::from_secs(20), self.response.chunk()).await;
        let chunk = chunk.expect("a stream that hangs").unwrap();
        if let Some(bytes) = &chunk {
            self.received.push(bytes);
        }
        self.told.extend(std::iter::from_fn(|| self.received.pop()));
        chunk.is_some()
    }

    /// Reads until `count` events of a kind have arrived.
    async fn read_until(&mut self, count: usize, kind: &str) {
        while self.told.iter().filter(|told| told.kind == kind).count() < count {
            assert!(self.read().await, "the stream ended: {:?}", self.told);
        }
    }

    /// The wanted events up to the last one of a kind.
    fn up_to(&self, kind: &str, is_wanted: impl Fn(&Told) -> bool) -> Vec<Told> {
        let last = self.told.iter().rposition(|told| told.kind == kind).unwrap();
        self.told[..=last].iter().filter(|told| is_wanted(told)).cloned().collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_compressed_stream_tells_the_same_as_it_comes_and_ends_whole() {
    let server = serve(&config()).await;
    server.operate(route::TASKS, &json!({ "spec": small_task() })).await;
    let mut other = small_task();
    other["name"] = json!("other");
    let other = server.operate(route::TASKS, &json!({ "spec": other })).await["id"].clone();
    let made = server.operate(route::OPERATOR_TOKENS, &json!({ "name": "tv", "role": "viewer" })).await;
    let token = made["token"].as_str().unwrap();

    let mut plain = Stream::open(&server, token, "/v1/events?after=0", "identity").await;
    let mut all = Stream::open(&server, token, "/v1/events?after=0", "br, gzip").await;
    let mut same = Stream::open(&server, token, "/v1/events?after=0", "gzip").await;
    let mut of_task = Stream::open(&server, token, "/v1/tasks/other/events?after=0", "gzip").await;
    let mut of_kind = Stream::open(&server, token, "/v1/events?after=0&kind=task_resumed", "gzip").await;
    assert!(plain.response.headers().get("content-encoding").is_none());
    for compressed in [&all, &same, &of_task, &of_kind] {
        assert_eq!(compressed.response.headers()["content-encoding"], "gzip");
    }
    for turn in 1..=5 {
        for task in ["small", "other"] {
            for action in ["pause", "resume"] {
                server.operate(&format!("/v1/tasks/{task}/{action}"), &json!({})).await;
            }
        }
        // Each stream gets all events before the next turn.
        for stream in [&mut plain, &mut all, &mut same, &mut of_kind] {
            stream.read_until(2 * turn, RESUMED).await;
        }
        of_task.read_until(turn, RESUMED).await;
    }
    let expected = plain.up_to(RESUMED, |_| true);
    assert!(expected.iter().map(|told| told.id).eq(1..=expected.len() as u64));
    assert_eq!(all.up_to(RESUMED, |_| true), expected);
    assert_eq!(same.up_to(RESUMED, |_| true), expected);
    assert_eq!(of_task.up_to(RESUMED, |_| true), plain.up_to(RESUMED, |told| told.data["task"] == other));
    assert_eq!(of_kind.told, plain.up_to(RESUMED, |told| told.kind == RESUMED));

    let revoke = route::fill(route::OPERATOR_TOKEN_REVOKE, &[&made["id"].as_str().unwrap()]);
    let revoke = server.client(None).post(server.url(&revoke)).bearer_auth(&server.token).json(&json!({}));
    assert_eq!(revoke.send().await.unwrap().status(), StatusCode::NO_CONTENT);
    for mut stream in [plain, all, same, of_task, of_kind] {
        while stream.read().await {}
        stream.received.end();
    }
}

#[tokio::test]
async fn a_stream_that_nobody_reads_is_given_up() {
    let mut config = config();
    config.http.unread_timeout_ms = 500;
    config.http.event_streams_max = 1;
    let server = serve(&config).await;
    let long = "x".repeat(10_000);
    let long = long.as_str();
    let noted = server.running.coordinator().store.transact("test", |tx| {
        Box::pin(async move {
            for n in 0..100 {
                let facts = [("long", Fact::from(long))];
                tx.note_event(Timestamp(n), EventKind::ParticipantRevoked, Subject::Service, facts);
            }
            Ok::<_, StoreError>(())
        })
    });
    noted.await.unwrap();
    let stream = server.shake_hands("h2", None).await;
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(1000);
    let (client, connection) = builder.handshake::<_, Bytes>(stream).await.unwrap();
    let ended = tokio::spawn(connection);
    let mut client = client.ready().await.unwrap();
    let request =
        Request::get(server.url("/v1/events?after=0")).header("authorization", format!("Bearer {}", server.token));
    let (response, _) = client.send_request(request.body(()).unwrap(), true).unwrap();
    let response = response.await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    // It answers PINGs without granting more window.
    tokio::time::timeout(Duration::from_secs(20), ended).await.expect("it is cut off").unwrap().unwrap_err();
    server.holds("nothing is unsent", |held| held.unsent_bytes == 0).await;
    // Its slot is free again.
    assert_eq!(read(&server, &server.client(None), 0, |told| told.len() == 101).await.len(), 101);
}
