//! Reports of model servers: readers of the task may send them within limits, and the log contains starts and stops.

use std::time::Duration;

use axum::body::Body;
use http::{Method, Request};
use serde_json::{Value, json};
use wire::problem::ProblemType;
use wire::route;

use crate::support::{Reply, TestCoordinator, Who, small_task};

async fn put(t: &TestCoordinator, who: &Who, path: &str, body: &Value) -> Reply {
    let request = Request::put(path).header("content-type", "application/json");
    t.send(who, request.body(Body::from(body.to_string())).unwrap()).await
}

fn report() -> Value {
    json!({ "version": 3, "over_ms": 30_000, "requests": 7, "errors": 1, "queue": 0 })
}

async fn names(t: &TestCoordinator) -> Vec<String> {
    let list = t.get(&t.viewer, "/v1/tasks/small/servers?limit=500").await.json();
    list["items"].as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn whoever_reads_the_task_may_tell_and_leave() {
    let t = TestCoordinator::start().await;
    t.create_task(&small_task()).await;
    let made = t.post(&t.admin, route::OPERATOR_TOKENS, &json!({ "name": "ward", "role": "predictor" })).await;
    let predictor = Who::Token(made.json()["token"].as_str().unwrap().to_owned());
    let (_, participant) = t.enroll("a").await;
    let path = "/v1/tasks/small/servers/models-1:8500";
    put(&t, &predictor, path, &report()).await.problem(ProblemType::Forbidden);
    for who in [&Who::Nobody, &participant] {
        put(&t, who, path, &report()).await.problem(ProblemType::Unauthenticated);
    }
    put(&t, &t.viewer, "/v1/tasks/none/servers/a", &report()).await.problem(ProblemType::NotFound);
    assert_eq!(put(&t, &t.viewer, path, &report()).await.status, 204);
    assert_eq!(names(&t).await, ["models-1:8500"]);
    for _ in 0..2 {
        assert_eq!(t.call(&t.viewer, Method::DELETE, path).await.status, 204);
        assert!(names(&t).await.is_empty());
    }
}

#[tokio::test]
async fn the_log_has_who_said_that_a_server_begins_and_stops_and_nothing_in_between() {
    let t = TestCoordinator::start().await;
    let task = t.create_task(&small_task()).await;
    let path = "/v1/tasks/small/servers/models-1:8500";
    let events = async || {
        t.inner.engine.number_events().await.unwrap();
        let log = t.get(&t.viewer, "/v1/audit?kind=server_joined,server_left").await.json();
        let items = log["items"].as_array().unwrap().clone();
        for event in &items {
            assert_eq!((&event["task"], &event["body"]), (&json!(task), &json!({ "server": "models-1:8500" })));
        }
        let said = |event: &Value| {
            let word = |value: &Value| value.as_str().unwrap().to_owned();
            format!("{} {}", word(&event["actor"]["name"]), word(&event["kind"]))
        };
        items.iter().rev().map(said).collect::<Vec<_>>()
    };
    for _ in 0..3 {
        assert_eq!(put(&t, &t.viewer, path, &report()).await.status, 204);
        t.advance(Duration::from_secs(30));
    }
    assert_eq!(events().await, ["viewer server_joined"]);
    for _ in 0..2 {
        assert_eq!(t.call(&t.operator, Method::DELETE, path).await.status, 204);
    }
    assert_eq!(events().await, ["viewer server_joined", "operator server_left"]);
    // A server starts again, also after silence without a stop report.
    assert_eq!(put(&t, &t.operator, path, &report()).await.status, 204);
    t.advance(Duration::from_secs(120));
    assert_eq!(put(&t, &t.viewer, path, &report()).await.status, 204);
    assert_eq!(events().await[2..], ["operator server_joined", "viewer server_joined"]);
}

#[tokio::test]
async fn what_no_server_says_is_refused() {
    let t = TestCoordinator::start().await;
    t.create_task(&small_task()).await;
    let long = format!("/v1/tasks/small/servers/{}", "x".repeat(129));
    for path in [long.as_str(), "/v1/tasks/small/servers/ward%207", "/v1/tasks/small/servers/%00"] {
        let detail = put(&t, &t.viewer, path, &report()).await.problem(ProblemType::InvalidValue);
        assert!(detail.contains("1 to 128 letters"), "{detail}");
    }
    let with = |key: &str, value: Value| {
        let mut report = report();
        report[key] = value;
        report
    };
    let refused = vec![json!({ "version": 1, "because": "unfit" }); 11];
    for (body, kind) in [
        (with("errors", json!(8)), ProblemType::InvalidValue),
        (with("canary", json!({ "version": 4, "percent": 101, "left_ms": 0 })), ProblemType::InvalidValue),
        (with("refused", json!(refused)), ProblemType::InvalidValue),
        (with("refused", json!([{ "version": 1, "because": "mood" }])), ProblemType::MalformedRequest),
        (with("queue", json!(-1)), ProblemType::MalformedRequest),
        (with("inputs", json!([0.5])), ProblemType::MalformedRequest),
        (with("inputs", json!("x".repeat(9000))), ProblemType::TooLarge),
    ] {
        put(&t, &t.viewer, "/v1/tasks/small/servers/a", &body).await.problem(kind);
    }
    assert!(names(&t).await.is_empty());
}

#[tokio::test]
async fn a_task_has_a_hundred_servers_at_most() {
    let t = TestCoordinator::start().await;
    t.create_task(&small_task()).await;
    let of = |n: usize| format!("/v1/tasks/small/servers/models-{n}:8500");
    for n in 0..100 {
        assert_eq!(put(&t, &t.viewer, &of(n), &report()).await.status, 204);
        // Stays within the rate limit.
        t.advance(Duration::from_millis(100));
    }
    let detail = put(&t, &t.viewer, &of(100), &report()).await.problem(ProblemType::Conflict);
    assert!(detail.contains("100 other servers"), "{detail}");
    assert_eq!(put(&t, &t.viewer, &of(7), &report()).await.status, 204, "it is one of them");
    assert_eq!(t.call(&t.viewer, Method::DELETE, &of(8)).await.status, 204);
    assert_eq!(put(&t, &t.viewer, &of(100), &report()).await.status, 204);
    let names = names(&t).await;
    assert!(names.len() == 100 && !names.contains(&"models-8:8500".to_owned()), "{names:?}");
}

#[tokio::test]
async fn nobody_fills_the_log_by_telling_and_leaving() {
    let t = TestCoordinator::start().await;
    t.create_task(&small_task()).await;
    let path = "/v1/tasks/small/servers/models-1:8500";
    let told = async || put(&t, &t.viewer, path, &report()).await.status.as_u16();
    let left = async || t.call(&t.viewer, Method::DELETE, path).await.status.as_u16();
    let noted = async || {
        t.inner.engine.number_events().await.unwrap();
        let log = t.get(&t.viewer, "/v1/audit?kind=server_joined,server_left&limit=500").await.json();
        log["items"].as_array().unwrap().len()
    };
    for n in 0..100 {
        assert_eq!((told().await, left().await), (204, 204), "{n}");
    }
    assert_eq!(noted().await, 200);
    assert_eq!(told().await, 429);
    assert!(names(&t).await.is_empty(), "nothing is listed of which the log knows nothing");
    assert_eq!(put(&t, &t.operator, path, &report()).await.status, 204, "others are not held up");
    assert_eq!(told().await, 204, "it counts already");
    assert_eq!(left().await, 429);
    assert_eq!(names(&t).await, ["models-1:8500"]);
    t.advance(Duration::from_secs(1));
    assert_eq!((left().await, told().await), (204, 429));
    assert_eq!(noted().await, 202);
}
