//! Pinned versions stay, unpinned ones follow the task's retention, and deleted versions are distinguished from unknown ones.

use std::time::Duration;

use axum::body::Body;
use http::Request;
use serde_json::json;
use wire::problem::ProblemType;
use wire::route;

use crate::support::{TestCoordinator, input, small_task};

#[tokio::test]
async fn a_pinned_version_stays_and_an_unpinned_one_goes() {
    let t = TestCoordinator::start().await;
    let mut spec = small_task();
    spec["retain"] = json!({ "last": 1 });
    let task = t.create_task(&spec).await;
    let (pin, unpin) = (route::fill(route::MODEL_PIN, &[&task, &0]), route::fill(route::MODEL_UNPIN, &[&task, &0]));
    t.post(&t.viewer, &pin, &json!({})).await.problem(ProblemType::Forbidden);
    t.post(&t.operator, &route::fill(route::MODEL_PIN, &[&task, &7]), &json!({})).await.problem(ProblemType::NotFound);
    let pinned = t.post(&t.operator, &pin, &json!({})).await.json();
    assert_eq!((&pinned["version"], &pinned["pinned_at"]), (&json!(0), &json!(t.now().0)));
    t.advance(Duration::from_secs(1));
    assert_eq!(t.post(&t.operator, &pin, &json!({})).await.json(), pinned, "asked twice");

    let (a, b) = (t.enroll("a").await, t.enroll("b").await);
    let work = t.assigned(&[a.1.clone(), b.1.clone()]).await.remove(0);
    for (id, who) in [&a, &b] {
        assert_eq!(t.send(who, t.upload(&work, *id, &input([1, 2, 3]))).await.status, 200);
    }
    t.work().await;
    let path = route::model_parameters(task, 0);
    let whole = t.get(&a.1, &path).await;
    assert_eq!(whole.status, 200, "it is neither the newest nor a base, and pinned");

    let gone = t.post(&t.operator, &unpin, &json!({})).await.json();
    assert_eq!((&gone["pinned_at"], &gone["removed_at"]), (&json!(null), &json!(t.now().0)));
    for who in [&a.1, &t.viewer] {
        let told = t.get(who, &path).await;
        assert_eq!(told.status, 410);
        let detail = told.problem(ProblemType::VersionRemoved);
        assert!(detail.contains("model version 0 is removed"), "{detail}");
    }
    let etag = whole.headers["etag"].clone();
    let known = Request::get(&path).header("if-none-match", etag).body(Body::empty()).unwrap();
    assert_eq!(t.send(&a.1, known).await.status, 304, "whoever has it goes on with it");
    t.post(&t.operator, &pin, &json!({})).await.problem(ProblemType::VersionRemoved);
    t.post(&t.operator, &unpin, &json!({})).await.problem(ProblemType::VersionRemoved);
    assert_eq!(t.get(&t.viewer, &route::fill(route::MODEL, &[&task, &0])).await.json(), gone, "its row stays");
    assert_eq!(t.get(&a.1, &route::model_parameters(task, 1)).await.status, 200);
    t.get(&a.1, &route::model_parameters(task, 2)).await.problem(ProblemType::NotFound);
}
