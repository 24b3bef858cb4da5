//! Lists are filtered, and their cursors are positions in the whole list.

use serde_json::json;
use wire::inspect::{Page, ParticipantView, RoundView, TaskSummary};
use wire::problem::ProblemType;
use wire::route;

use crate::support::{TestCoordinator, small_task};

#[tokio::test]
async fn tasks_and_rounds_are_narrowed_down() {
    let t = TestCoordinator::start().await;
    for name in ["a", "b", "c"] {
        let mut spec = small_task();
        spec["name"] = json!(name);
        t.create_task(&spec).await;
        t.advance(std::time::Duration::from_secs(1));
    }
    assert_eq!(t.post(&t.operator, "/v1/tasks/b/pause", &json!({})).await.status, 200);
    let names = async |query: &str| {
        let page: Page<TaskSummary> = t.get(&t.viewer, &format!("/v1/tasks?{query}")).await.read();
        (page.items.into_iter().map(|task| task.name).collect::<Vec<_>>().join(" "), page.next_cursor)
    };
    assert_eq!(names("state=ACTIVE").await.0, "c a");
    assert_eq!(names("state=PAUSED,CANCELLED").await.0, "b");
    assert_eq!(names("since=1750000001000").await.0, "c b");
    assert_eq!(names("since=2025-06-15T15:06:41Z&state=ACTIVE").await.0, "c");
    assert_eq!(names("since=2025-06-15T17:06:42%2B02:00").await.0, "c");
    // A cursor of one filter continues with another filter from the same position.
    let (first, cursor) = names("state=ACTIVE&limit=1").await;
    assert_eq!(first, "c");
    assert_eq!(names(&format!("cursor={}", cursor.unwrap())).await.0, "b a");
    for (query, problem) in [
        ("state=ACTIVE,DONE", ProblemType::InvalidValue),
        ("state=", ProblemType::InvalidValue),
        ("since=yesterday", ProblemType::MalformedRequest),
        ("state=ACTIVE&state=PAUSED", ProblemType::MalformedRequest),
    ] {
        t.get(&t.viewer, &format!("/v1/tasks?{query}")).await.problem(problem);
    }
    let detail = t.get(&t.viewer, "/v1/tasks?state=DONE").await.problem(ProblemType::InvalidValue);
    assert!(detail.contains("DONE") && detail.contains("BUDGET_EXHAUSTED"), "{detail}");

    t.work().await;
    let rounds = async |query: &str| {
        let page: Page<RoundView> = t.get(&t.viewer, &format!("/v1/tasks/a/rounds?{query}")).await.read();
        page.items.len()
    };
    assert_eq!(rounds("state=SELECTING,FAILED").await, 1);
    assert_eq!(rounds("state=COMPLETED").await, 0);
    assert_eq!(rounds("since=2025-06-15T15:06:40Z").await, 1);
    assert_eq!(rounds("since=2099-01-01T00:00:00Z").await, 0);
    t.get(&t.viewer, "/v1/tasks/a/rounds?state=selecting").await.problem(ProblemType::InvalidValue);
}

#[tokio::test]
async fn participants_are_narrowed_down_by_labels_and_state() {
    let t = TestCoordinator::start().await;
    let mut ids = Vec::new();
    for (name, labels) in
        [("a", json!({"region": "eu", "site": "x"})), ("b", json!({"region": "eu"})), ("c", json!({}))]
    {
        let body = json!({ "labels": labels });
        let token = t.post(&t.operator, route::ENROLLMENT_TOKENS, &body).await.json()["token"].clone();
        let (_, csr) = crate::support::key_and_csr();
        let body = json!({ "token": token, "csr_pem": csr, "name": name });
        let reply = t.post(&crate::support::Who::Nobody, route::ENROLL, &body).await.json();
        ids.push(reply["participant"].as_str().unwrap().to_owned());
        t.advance(std::time::Duration::from_secs(1));
    }
    let revoke = route::fill(route::PARTICIPANT_REVOKE, &[&ids[1]]);
    assert_eq!(t.post(&t.operator, &revoke, &json!({})).await.status, 200);
    let names = async |query: &str| {
        let page: Page<ParticipantView> = t.get(&t.viewer, &format!("/v1/participants?{query}")).await.read();
        let mut names: Vec<_> = page.items.into_iter().map(|view| view.name).collect();
        names.sort();
        names.join(" ")
    };
    assert_eq!(names("label=region%3Deu").await, "a b");
    assert_eq!(names("label=region=eu&label=site=x").await, "a");
    assert_eq!(names("label=region=eu&state=revoked").await, "b");
    assert_eq!(names("state=active").await, "a c");
    assert_eq!(names("label=region=us").await, "");
    assert_eq!(names("since=1750000001000").await, "b c");
    assert_eq!(names("since=2025-06-15T15:06:41Z&state=active").await, "c");
    assert_eq!(names("since=2099-01-01T00:00:00Z").await, "");
    for (query, problem) in [
        ("label=region", ProblemType::InvalidValue),
        ("label=region=eu&label=region=us", ProblemType::InvalidValue),
        ("state=gone", ProblemType::MalformedRequest),
        ("since=yesterday", ProblemType::MalformedRequest),
    ] {
        t.get(&t.viewer, &format!("/v1/participants?{query}")).await.problem(problem);
    }
}
