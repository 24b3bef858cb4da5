//! Overlong names are rejected with a helpful message, and are not stored or quoted.

use serde_json::{Value, json};
use wire::audit::EventView;
use wire::inspect::Page;
use wire::problem::ProblemType;
use wire::route;

use crate::support::{Reply, TestCoordinator, Who, key_and_csr, small_task};

/// Characters of a name in a body: below the body limit.
const IN_A_BODY: usize = 1_000_000;
/// Characters of a name in a URL, limited to 65,534 bytes.
const IN_AN_ADDRESS: usize = 60_000;

fn assert_refused(what: &str, reply: &Reply, kind: ProblemType, right: &str) {
    let detail = reply.problem(kind);
    let text = String::from_utf8_lossy(&reply.body);
    assert!(text.len() < 20_000, "{what}: {} bytes are told back: {detail:.200}", text.len());
    assert!(text.contains(right), "{what}: {detail:.2000}");
}

/// All stored data is in the log, or in one of these lists.
async fn stored(t: &TestCoordinator) -> Vec<Value> {
    t.inner.engine.number_events().await.unwrap();
    let log: Page<EventView> = t.get(&t.viewer, route::AUDIT).await.read();
    let mut all = vec![json!(log.items.len())];
    for list in [route::TASKS, route::PARTICIPANTS, route::OPERATOR_TOKENS] {
        all.push(t.get(&t.admin, list).await.json());
    }
    all
}

#[tokio::test]
async fn names_of_a_million_characters_are_refused_and_not_stored() {
    let t = TestCoordinator::start().await;
    let (_, participant) = t.enroll("a").await;
    let (long, token, (_, csr)) = ("x".repeat(IN_A_BODY), t.enrollment_token().await, key_and_csr());
    let before = stored(&t).await;
    let mut spec = small_task();
    spec["name"] = json!(long);
    let mut unknown = small_task();
    unknown.as_object_mut().unwrap().insert(long.clone(), json!(1));
    let (name, labels) = ("1 to 64 letters, digits", "each name and value of 1 to");
    let enroll = |name: &str, labels: Value| json!({ "token": token, "csr_pem": csr, "name": name, "labels": labels });
    let (invalid, operator, admin, nobody) = (ProblemType::InvalidValue, &t.operator, &t.admin, &Who::Nobody);
    for (what, who, path, body, kind, right) in [
        ("a task's name", operator, route::TASKS, json!({ "spec": spec }), ProblemType::InvalidTask, name),
        (
            "a task's key",
            operator,
            route::TASKS,
            json!({ "spec": unknown }),
            ProblemType::MalformedRequest,
            "expected one of",
        ),
        ("a token's name", admin, route::OPERATOR_TOKENS, json!({ "name": long, "role": "viewer" }), invalid, name),
        ("an enrolment's name", operator, route::ENROLLMENT_TOKENS, json!({ "name": long }), invalid, name),
        ("a label", operator, route::ENROLLMENT_TOKENS, json!({ "labels": { "site": long } }), invalid, labels),
        ("a label's name", operator, route::ENROLLMENT_TOKENS, json!({ "labels": { &long: "a" } }), invalid, labels),
        ("a participant's name", nobody, route::ENROLL, enroll(&long, json!({})), invalid, name),
        ("a participant's label", nobody, route::ENROLL, enroll("b", json!({ "site": long })), invalid, labels),
        (
            "the task of a check-in",
            &participant,
            route::CHECK_IN,
            json!({ "task": long, "examples": 1, "wait_ms": 0 }),
            invalid,
            name,
        ),
    ] {
        assert_refused(what, &t.post(who, path, &body).await, kind, right);
    }
    assert_eq!(stored(&t).await, before);
    // The token is also unused.
    assert_eq!(t.post(nobody, route::ENROLL, &enroll("b", json!({}))).await.status, 200);
}

#[tokio::test]
async fn parameters_without_end_are_refused() {
    let t = TestCoordinator::start().await;
    let long = "x".repeat(IN_AN_ADDRESS);
    let (invalid, malformed) = (ProblemType::InvalidValue, ProblemType::MalformedRequest);
    for (path, kind, right) in [
        (format!("/v1/tasks?state={long}"), invalid, "BUDGET_EXHAUSTED"),
        (format!("/v1/tasks?cursor={long}"), invalid, "next_cursor"),
        (format!("/v1/tasks?fields={long}"), invalid, "rounds_completed"),
        (format!("/v1/tasks?limit={long}"), malformed, "the query"),
        (format!("/v1/tasks?{long}=1"), malformed, "since"),
        (format!("/v1/audit?kind={long}"), invalid, "task_paused"),
        (format!("/v1/audit?task={long}"), ProblemType::NotFound, "there is no task"),
        (format!("/v1/tasks/{long}"), ProblemType::NotFound, "there is no task"),
    ] {
        assert_refused(&format!("{path:.20}"), &t.get(&t.viewer, &path).await, kind, right);
    }
}
