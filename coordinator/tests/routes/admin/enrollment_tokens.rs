//! Bounds of enrolment tokens.

use serde_json::{Value, json};
use wire::problem::ProblemType;
use wire::route;

use crate::support::TestCoordinator;

#[tokio::test]
async fn tokens_have_bounds() {
    let t = TestCoordinator::start().await;
    t.enroll("taken").await;
    let post = async |body: Value| t.post(&t.operator, route::ENROLLMENT_TOKENS, &body).await;
    let detail = post(json!({ "name": "taken" })).await.problem(ProblemType::Conflict);
    assert!(detail.contains("with its journal it needs no token"), "{detail}");
    post(json!({ "name": "no blanks" })).await.problem(ProblemType::InvalidValue);
    post(json!({ "valid_for_ms": 0 })).await.problem(ProblemType::InvalidValue);
    post(json!({ "valid_for_ms": 31_u64 * 24 * 3600 * 1000 })).await.problem(ProblemType::InvalidValue);
    post(json!({ "labels": { "region": "x".repeat(200) } })).await.problem(ProblemType::InvalidValue);
    post(json!({ "labels": { "region": "e\0u" } })).await.problem(ProblemType::InvalidValue);
    let reply = post(json!({})).await.json();
    assert_eq!(reply["token"].as_str().unwrap().len(), 43);
    let body = json!({ "name": "x", "role": "emperor" });
    t.post(&t.admin, route::OPERATOR_TOKENS, &body).await.problem(ProblemType::MalformedRequest);
}
