//! Event streams: their start, contents and end.

use std::time::Duration;

use axum::body::Body;
use coordinator::http::Connection;
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::json;
use test_servers::postgres::Cluster;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;
use wire::problem::ProblemType;
use wire::route;

use crate::support::sse::{Received, Told};
use crate::support::{Reply, TestCoordinator, Who, config, small_task};

struct Stream {
    body: Body,
    received: Received,
}

impl Stream {
    async fn open(t: &TestCoordinator, who: &Who, path: &str, last: Option<u64>) -> Self {
        let last = last.map(|last| last.to_string());
        let headers: Vec<_> = last.iter().map(|last| ("last-event-id", last.as_str())).collect();
        let response = respond(t, who, path, &headers).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        assert_eq!(response.headers()["cache-control"], "no-store");
        assert_eq!(response.headers()["vary"], "accept-encoding");
        assert_eq!(response.headers().get("content-encoding"), None);
        Self { body: response.into_body(), received: Received::default() }
    }

    /// A compressed stream.
    async fn open_gzip(t: &TestCoordinator, who: &Who, path: &str) -> Self {
        let response = respond(t, who, path, &[("accept-encoding", "br;q=1, gzip;q=0.5")]).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        assert_eq!(response.headers()["vary"], "accept-encoding");
        assert_eq!(response.headers()["content-encoding"], "gzip");
        Self { body: response.into_body(), received: Received::gzip() }
    }

    /// The next event; `None` at the stream's end.
    async fn next(&mut self) -> Option<Told> {
        loop {
            if let Some(told) = self.received.pop() {
                return Some(told);
            }
            let frame =
                tokio::time::timeout(Duration::from_secs(30), self.body.frame()).await.expect("a stream that hangs");
            self.received.push(&frame?.unwrap().into_data().unwrap());
        }
    }

    async fn take(&mut self, count: usize) -> Vec<Told> {
        let mut told = Vec::new();
        while told.len() < count {
            told.push(self.next().await.expect("the stream goes on"));
        }
        told
    }

    /// The announced start position, before any event.
    async fn begins_after(&mut self) -> u64 {
        self.received.push(&self.body.frame().await.unwrap().unwrap().into_data().unwrap());
        assert_eq!(self.received.pop(), None);
        self.received.begins_after.unwrap()
    }

    /// Whether the stream is currently silent.
    async fn is_silent(&mut self) -> bool {
        tokio::time::timeout(Duration::from_millis(50), self.next()).await.is_err()
    }
}

async fn respond(t: &TestCoordinator, who: &Who, path: &str, headers: &[(&str, &str)]) -> http::Response<Body> {
    let mut request = Request::get(path).extension(Connection::default());
    if let Who::Token(token) = who {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    t.inner.router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap()
}

async fn change(t: &TestCoordinator, action: &str) {
    assert_eq!(t.post(&t.operator, &format!("/v1/tasks/small/{action}"), &json!({})).await.status, 200);
    t.inner.engine.number_events().await.unwrap();
}

fn kinds(told: &[Told]) -> Vec<&str> {
    told.iter().map(|told| told.kind.as_str()).collect()
}

#[tokio::test]
async fn a_stream_tells_what_happens_and_begins_where_it_is_asked_to() {
    let t = TestCoordinator::start().await;
    let id = t.create_task(&small_task()).await;
    t.inner.engine.number_events().await.unwrap();
    let mut live = Stream::open(&t, &t.viewer, route::EVENTS, None).await;
    change(&t, "pause").await;
    let paused = live.next().await.unwrap();
    assert_eq!(live.received.retry, Some(2000));
    // Three tokens, a task, its first version.
    assert_eq!((paused.id, paused.kind.as_str()), (6, "task_paused"));
    assert_eq!(paused.data["position"], 6);
    assert_eq!(paused.data["task"], json!(id));
    assert_eq!(
        (&paused.data["at"], &paused.data["time"]),
        (&json!(1_750_000_000_000_u64), &json!("2025-06-15T15:06:40Z"))
    );
    assert_eq!(paused.data["actor"]["by"], "operator");
    assert_eq!(paused.data["actor"]["name"], "operator");
    assert_eq!(paused.data["body"]["detail"], "by operator operator");
    assert_eq!(paused.data["hash"].as_str().unwrap().len(), 64);

    let mut from_start = Stream::open(&t, &t.viewer, "/v1/events?after=0", None).await;
    let all = from_start.take(6).await;
    let expected =
        ["operator_token_created"; 3].into_iter().chain(["task_created", "version_published", "task_paused"]);
    assert!(kinds(&all).into_iter().eq(expected));
    assert_eq!(all.iter().map(|told| told.id).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
    assert_eq!(all[5], paused);
    let mut continued = Stream::open(&t, &t.viewer, "/v1/events?after=0", Some(4)).await;
    assert_eq!(continued.take(2).await, all[4..]);
    let mut of_kind = Stream::open(&t, &t.viewer, "/v1/events?after=0&kind=task_paused,task_created", None).await;
    assert_eq!(kinds(&of_kind.take(2).await), ["task_created", "task_paused"]);
    let mut of_task = Stream::open(&t, &t.viewer, "/v1/tasks/small/events?after=0", None).await;
    assert_eq!(of_task.take(3).await, all[3..]);

    // Each stream sends its part of the following events.
    t.enrollment_token().await;
    change(&t, "resume").await;
    assert_eq!(kinds(&live.take(2).await), ["enrollment_token_created", "task_resumed"]);
    assert_eq!(kinds(&of_task.take(1).await), ["task_resumed"]);
    assert!(of_kind.is_silent().await);
}

#[tokio::test]
async fn a_stream_that_breaks_before_its_first_event_is_continued_where_it_began() {
    let t = TestCoordinator::start().await;
    t.create_task(&small_task()).await;
    t.inner.engine.number_events().await.unwrap();
    let mut broken = Stream::open(&t, &t.viewer, "/v1/events?kind=task_paused", None).await;
    let began = broken.begins_after().await;
    assert_eq!(began, 5);
    drop(broken);
    change(&t, "pause").await;
    let mut continued = Stream::open(&t, &t.viewer, "/v1/events?kind=task_paused", Some(began)).await;
    assert_eq!(continued.begins_after().await, began);
    let paused = continued.next().await.unwrap();
    assert_eq!((paused.id, paused.kind.as_str()), (6, "task_paused"));
    let mut from_start = Stream::open(&t, &t.viewer, "/v1/tasks/small/events?after=0", None).await;
    assert_eq!(from_start.begins_after().await, 0);
}

#[tokio::test]
async fn a_list_of_tasks_names_an_event_after_which_a_stream_misses_nothing_of_it() {
    let t = TestCoordinator::start().await;
    t.create_task(&small_task()).await;
    t.inner.engine.number_events().await.unwrap();
    let position = |list: &Reply| list.headers["last-event-id"].to_str().unwrap().to_owned();
    let list = t.get(&t.viewer, route::TASKS).await;
    assert_eq!(position(&list), "5");
    // Between reading the list and requesting a stream.
    change(&t, "pause").await;
    let mut stream = Stream::open(&t, &t.viewer, &format!("/v1/events?after={}", position(&list)), None).await;
    assert_eq!(kinds(&stream.take(1).await), ["task_paused"]);
    // The list already shows an unnumbered event, and the stream sends it again.
    assert_eq!(t.post(&t.operator, "/v1/tasks/small/resume", &json!({})).await.status, 200);
    let list = t.get(&t.viewer, "/v1/tasks?fields=status").await;
    assert_eq!((list.json()["items"][0]["status"].clone(), position(&list)), (json!("ACTIVE"), "6".to_owned()));
    t.inner.engine.number_events().await.unwrap();
    let mut stream = Stream::open(&t, &t.viewer, &format!("/v1/events?after={}", position(&list)), None).await;
    assert_eq!(kinds(&stream.take(1).await), ["task_resumed"]);
    let document = t.get(&Who::Nobody, route::OPENAPI).await.json();
    let described = &document["paths"]["/v1/tasks"]["get"]["responses"]["200"]["headers"]["last-event-id"];
    assert_eq!(described["schema"]["type"], "integer", "{described}");
}

#[tokio::test]
async fn a_stream_that_cannot_begin_is_refused_in_words() {
    let t = TestCoordinator::start().await;
    t.inner.engine.number_events().await.unwrap();
    let detail = t.get(&t.viewer, "/v1/events?after=4").await.problem(ProblemType::InvalidValue);
    assert!(detail.contains("position 3"), "{detail}");
    let detail = t.get(&t.viewer, "/v1/events?kind=task_painted").await.problem(ProblemType::InvalidValue);
    assert!(detail.contains("task_painted") && detail.contains("round_failed"), "{detail}");
    t.get(&t.viewer, "/v1/events?after=-1").await.problem(ProblemType::MalformedRequest);
    t.get(&t.viewer, "/v1/events?until=1").await.problem(ProblemType::MalformedRequest);
    t.get(&t.viewer, "/v1/tasks/none/events").await.problem(ProblemType::NotFound);
    let response = respond(&t, &t.viewer, route::EVENTS, &[("last-event-id", "yesterday")]).await;
    assert_eq!(response.status().as_u16(), ProblemType::InvalidValue.status());
    let (_, participant) = t.enroll("a").await;
    t.get(&participant, route::EVENTS).await.problem(ProblemType::Unauthenticated);
}

#[tokio::test]
async fn there_are_so_many_streams_and_no_more() {
    let mut config = config();
    config.http.event_streams_max = 2;
    let t = TestCoordinator::with(&config).await;
    let one = Stream::open(&t, &t.viewer, route::EVENTS, None).await;
    let _other = Stream::open(&t, &t.viewer, route::EVENTS, None).await;
    let refused = t.get(&t.viewer, route::EVENTS).await;
    let detail = refused.problem(ProblemType::Unavailable);
    assert!(detail.contains("event_streams_max"), "{detail}");
    assert_eq!(refused.headers["retry-after"], "5");
    drop(one);
    Stream::open(&t, &t.viewer, route::EVENTS, None).await;
}

#[tokio::test]
async fn one_token_cannot_take_all_streams() {
    let mut config = config();
    (config.http.event_streams_max, config.http.event_streams_per_token) = (8, 4);
    let t = TestCoordinator::with(&config).await;
    let viewer = async |name: &str| {
        let made = t.post(&t.admin, route::OPERATOR_TOKENS, &json!({ "name": name, "role": "viewer" })).await.json();
        Who::Token(made["token"].as_str().unwrap().to_owned())
    };
    let (greedy, other) = (viewer("greedy").await, viewer("other").await);
    let mut open = Vec::new();
    for who in [&greedy, &greedy, &greedy, &greedy, &other, &other, &other] {
        open.push(Stream::open(&t, who, route::EVENTS, None).await);
        let detail = match open.len() {
            4 => t.get(&greedy, route::EVENTS).await.problem(ProblemType::Unavailable),
            7 => t.get(&other, route::EVENTS).await.problem(ProblemType::Unavailable),
            _ => continue,
        };
        assert!(
            detail.contains(if open.len() == 4 { "event_streams_per_token" } else { "event_streams_max" }),
            "{detail}"
        );
    }
    // The last slot is reserved for an administrator.
    Stream::open(&t, &t.admin, route::EVENTS, None).await;
    drop(open.drain(..2));
    Stream::open(&t, &greedy, route::EVENTS, None).await;
}

#[tokio::test]
async fn a_stream_ends_with_its_token_and_with_the_coordinator() {
    let t = TestCoordinator::start().await;
    t.inner.engine.number_events().await.unwrap();
    let made = t.post(&t.admin, route::OPERATOR_TOKENS, &json!({ "name": "tv", "role": "viewer" })).await.json();
    let tv = Who::Token(made["token"].as_str().unwrap().to_owned());
    t.inner.engine.number_events().await.unwrap();
    let mut of_tv = Stream::open(&t, &tv, "/v1/events?kind=task_created", None).await;
    let mut of_viewer = Stream::open(&t, &t.viewer, route::EVENTS, None).await;
    let revoke = route::fill(route::OPERATOR_TOKEN_REVOKE, &[&made["id"].as_str().unwrap()]);
    assert_eq!(t.post(&t.admin, &revoke, &json!({})).await.status, 204);
    t.inner.engine.number_events().await.unwrap();
    assert_eq!(of_tv.next().await, None, "its token is worth nothing any more");
    assert_eq!(of_viewer.next().await.unwrap().kind, "operator_token_revoked");
    t.inner.stop().await;
    assert_eq!(of_viewer.next().await, None);
    t.get(&t.viewer, route::EVENTS).await.problem(ProblemType::Unavailable);
}

#[tokio::test]
async fn a_stream_ends_when_its_token_expires_and_when_its_reader_signs_out() {
    let t = TestCoordinator::start().await;
    t.create_task(&small_task()).await;
    let body = json!({ "name": "tv", "role": "viewer", "valid_for_ms": 60_000 });
    let made = t.post(&t.admin, route::OPERATOR_TOKENS, &body).await.json();
    let tv = Who::Token(made["token"].as_str().unwrap().to_owned());
    let request = Request::post(route::SIGN_INS)
        .header("content-type", "application/json")
        .header("tributary-request", "dashboard");
    let Who::Token(viewer) = &t.viewer else { panic!("no token") };
    let body = json!({ "token": viewer }).to_string();
    let signed_in = t.send(&Who::Nobody, request.body(Body::from(body)).unwrap()).await;
    let cookie = signed_in.headers["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned();
    t.inner.engine.number_events().await.unwrap();
    let mut of_tv = Stream::open(&t, &tv, route::EVENTS, None).await;
    let request = Request::get(route::EVENTS).extension(Connection::default()).header("cookie", &cookie);
    let response = t.inner.router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    let mut of_browser = Stream { body: response.into_body(), received: Received::default() };

    t.advance(Duration::from_millis(59_999));
    change(&t, "pause").await;
    assert_eq!(of_tv.next().await.unwrap().kind, "task_paused");
    t.advance(Duration::from_millis(1));
    change(&t, "resume").await;
    assert_eq!(of_tv.next().await, None, "its token has expired");

    assert_eq!(kinds(&of_browser.take(2).await), ["task_paused", "task_resumed"]);
    let out = Request::delete(route::SIGN_IN).header("cookie", &cookie).header("tributary-request", "dashboard");
    assert_eq!(t.send(&Who::Nobody, out.body(Body::empty()).unwrap()).await.status, StatusCode::NO_CONTENT);
    t.inner.engine.number_events().await.unwrap();
    assert_eq!(of_browser.next().await.unwrap().kind, "signed_out");
    assert_eq!(of_browser.next().await, None);
}

#[tokio::test]
async fn a_stream_that_is_behind_tells_nothing_more_once_its_token_has_ended() {
    let t = TestCoordinator::start().await;
    t.create_task(&small_task()).await;
    let made = t.post(&t.admin, route::OPERATOR_TOKENS, &json!({ "name": "tv", "role": "viewer" })).await.json();
    let tv = Who::Token(made["token"].as_str().unwrap().to_owned());
    t.inner.engine.number_events().await.unwrap();
    let mut of_tv = Stream::open(&t, &tv, "/v1/events?after=0", None).await;
    assert_eq!(of_tv.begins_after().await, 0);
    let revoke = route::fill(route::OPERATOR_TOKEN_REVOKE, &[&made["id"].as_str().unwrap()]);
    assert_eq!(t.post(&t.admin, &revoke, &json!({})).await.status, 204);
    assert_eq!(of_tv.next().await, None, "not even what had happened before");
}

#[tokio::test]
async fn a_stream_for_some_tasks_tells_of_them_alone() {
    let t = TestCoordinator::start().await;
    t.create_task(&small_task()).await;
    let mut spec = small_task();
    spec["name"] = json!("other");
    t.create_task(&spec).await;
    let body = json!({ "name": "ward", "role": "viewer", "tasks": ["small"] });
    let made = t.post(&t.admin, route::OPERATOR_TOKENS, &body).await.json();
    let ward = Who::Token(made["token"].as_str().unwrap().to_owned());
    t.inner.engine.number_events().await.unwrap();
    let mut stream = Stream::open(&t, &ward, "/v1/events?after=0", None).await;
    let missed = stream.take(2).await;
    assert_eq!(kinds(&missed), ["task_created", "version_published"]);
    assert_eq!(missed.iter().map(|told| told.id).collect::<Vec<_>>(), [4, 5], "as in the whole log");
    assert_eq!(t.post(&t.operator, "/v1/tasks/other/pause", &json!({})).await.status, 200);
    change(&t, "pause").await;
    let told = stream.next().await.unwrap();
    assert_eq!((told.id, told.kind.as_str()), (10, "task_paused"));
    assert!(stream.is_silent().await);
}

#[tokio::test(start_paused = true)]
async fn a_stream_on_which_nothing_happens_shows_that_it_is_alive() {
    let t = TestCoordinator::start().await;
    t.inner.engine.number_events().await.unwrap();
    for is_compressed in [false, true] {
        let mut stream = if is_compressed {
            Stream::open_gzip(&t, &t.viewer, route::EVENTS).await
        } else {
            Stream::open(&t, &t.viewer, route::EVENTS, None).await
        };
        let began = tokio::time::Instant::now();
        for _ in 0..4 {
            stream.received.push(&stream.body.frame().await.unwrap().unwrap().into_data().unwrap());
        }
        assert_eq!(stream.received.pop(), None);
        assert_eq!((stream.received.comments, began.elapsed().as_secs()), (3, 45));
    }
}

#[tokio::test]
async fn a_compressed_stream_can_be_read_up_to_each_of_its_parts() {
    let t = TestCoordinator::start().await;
    t.create_task(&small_task()).await;
    t.inner.engine.number_events().await.unwrap();
    let body = json!({ "name": "tv", "role": "viewer", "valid_for_ms": 60_000 });
    let made = t.post(&t.admin, route::OPERATOR_TOKENS, &body).await.json();
    let tv = Who::Token(made["token"].as_str().unwrap().to_owned());
    let mut plain = Stream::open(&t, &t.viewer, "/v1/events?after=2", None).await;
    let mut compressed = Stream::open_gzip(&t, &t.viewer, "/v1/events?after=2").await;
    let mut of_tv = Stream::open_gzip(&t, &tv, "/v1/events?kind=task_paused,task_resumed").await;
    assert_eq!(compressed.begins_after().await, 2);
    assert_eq!(of_tv.begins_after().await, 5);
    // First the missed events, then new ones.
    assert_eq!(compressed.take(3).await, plain.take(3).await);
    change(&t, "pause").await;
    assert_eq!(compressed.take(2).await, plain.take(2).await);
    assert_eq!(kinds(&of_tv.take(1).await), ["task_paused"]);
    // Events omitted because of the expired token are also omitted from the checksum.
    t.advance(Duration::from_millis(60_000));
    change(&t, "resume").await;
    assert_eq!(of_tv.next().await, None);
    of_tv.received.end();
    assert_eq!(compressed.take(1).await, plain.take(1).await);
    t.inner.stop().await;
    assert_eq!(compressed.next().await, None);
    compressed.received.end();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_coordinator_does_is_told_by_another() {
    let Some(cluster) = Cluster::shared() else { return };
    let mut config = config();
    config.database.url = cluster.url(&cluster.create_database());
    let here = TestCoordinator::with(&config).await;
    let there = here.beside(&config, 2).await;
    let shutdown = CancellationToken::new();
    let engines = [&here, &there].map(|t| {
        let (engine, shutdown) = (t.inner.engine.clone(), shutdown.clone());
        tokio::spawn(async move { engine.run(shutdown).await })
    });
    let mut stream = Stream::open(&there, &there.viewer, "/v1/events?after=0", None).await;
    stream.take(3).await;
    here.create_task(&small_task()).await;
    for n in 0..20 {
        let (t, action) = (if n % 3 == 0 { &there } else { &here }, if n % 2 == 0 { "pause" } else { "resume" });
        assert_eq!(t.post(&t.operator, &format!("/v1/tasks/small/{action}"), &json!({})).await.status, 200);
    }
    let mut told = Vec::new();
    while told.iter().filter(|told: &&Told| told.kind == "task_resumed").count() < 10 {
        told.push(stream.next().await.unwrap());
    }
    assert!(told.iter().map(|told| told.id).eq(4..4 + told.len() as u64), "each once, in order");
    let changes: Vec<_> =
        kinds(&told).into_iter().filter(|kind| ["task_paused", "task_resumed"].contains(kind)).collect();
    assert_eq!(changes, ["task_paused", "task_resumed"].repeat(10));
    shutdown.cancel();
    for engine in engines {
        engine.await.unwrap();
    }
    here.inner.stop().await;
    there.inner.stop().await;
}
