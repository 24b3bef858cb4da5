//! The model servers of a task are listed by name, page by page, until their reports expire.

use std::time::Duration;

use axum::body::Body;
use http::Request;
use serde_json::{Value, json};
use wire::inspect::{Page, ServerView};
use wire::problem::ProblemType;

use crate::support::{TestCoordinator, config, small_task};

async fn tell(t: &TestCoordinator, name: &str, report: &Value) {
    let request = Request::put(format!("/v1/tasks/small/servers/{name}")).header("content-type", "application/json");
    let reply = t.send(&t.viewer, request.body(Body::from(report.to_string())).unwrap()).await;
    assert_eq!((reply.status.as_u16(), reply.body.len()), (204, 0), "{reply:?}");
}

fn report(requests: u64) -> Value {
    json!({ "version": 3, "over_ms": 30_000, "requests": requests, "errors": 0, "queue": 0 })
}

#[tokio::test]
async fn servers_are_listed_in_pages_until_they_are_silent() {
    let t = TestCoordinator::start().await;
    t.create_task(&small_task()).await;
    let empty: Page<ServerView> = t.get(&t.viewer, "/v1/tasks/small/servers").await.read();
    assert_eq!((empty.items.len(), empty.next_cursor), (0, None));
    for name in ["ward-7:8500", "icu", "clinic.example.org:8500"] {
        tell(&t, name, &report(7)).await;
    }
    t.advance(Duration::from_secs(30));
    let canary = json!({ "version": 4, "percent": 12.5, "left_ms": 600_000 });
    let later = json!({
        "version": 3, "canary": canary, "refused": [{ "version": 2, "because": "slow" }], "over_ms": 30_000,
        "requests": 9, "errors": 1, "p99_ms": 12, "queue": 4, "desired_replicas": 2,
    });
    tell(&t, "icu", &later).await;
    let first = t.get(&t.viewer, "/v1/tasks/small/servers?limit=2").await.json();
    assert_eq!(first["items"][0]["name"], "clinic.example.org:8500");
    assert_eq!(first["items"][1], json!({ "name": "icu", "told_at": t.now().0, "report": later }));
    let next = format!("/v1/tasks/small/servers?limit=2&cursor={}", first["next_cursor"].as_str().unwrap());
    let last: Page<ServerView> = t.get(&t.viewer, &next).await.read();
    let names: Vec<_> = last.items.iter().map(|server| server.name.as_str()).collect();
    assert_eq!((names, last.next_cursor), (vec!["ward-7:8500"], None));
    t.get(&t.viewer, "/v1/tasks/small/servers?cursor=tasks.icu").await.problem(ProblemType::InvalidValue);

    t.advance(Duration::from_secs(90));
    let left: Page<ServerView> = t.get(&t.viewer, "/v1/tasks/small/servers").await.read();
    assert_eq!(left.items.len(), 1, "two have been silent for two minutes");
    assert_eq!(left.items[0].name, "icu");
    t.inner.engine.collect_garbage().await.unwrap();
    assert_eq!(t.get(&t.viewer, "/v1/tasks/small/servers").await.json()["items"][0]["name"], "icu");
    t.advance(Duration::from_secs(30));
    assert_eq!(t.get(&t.viewer, "/v1/tasks/small/servers").await.json(), json!({ "items": [] }));
}

/// A report to one process is listed by another one on the same database.
#[tokio::test]
async fn every_replica_lists_them() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config();
    config.database.url = format!("sqlite:{}", folder.path().join("coordinator.db").display());
    let mut t = TestCoordinator::with(&config).await;
    t.create_task(&small_task()).await;
    tell(&t, "icu", &report(7)).await;
    t.restart(&config, 2).await;
    let listed: Page<ServerView> = t.get(&t.viewer, "/v1/tasks/small/servers").await.read();
    assert_eq!(listed.items[0].report.requests, 7);
}
