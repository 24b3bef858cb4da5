//! Operator tokens: creation, expiry and revocation; revoking the last admin's requires force.

use std::time::Duration;

use serde_json::json;
use wire::problem::ProblemType;
use wire::route;

use crate::support::{TestCoordinator, Who};

#[tokio::test]
async fn a_revoked_token_is_refused_at_once() {
    let t = TestCoordinator::start().await;
    let body = json!({ "name": "eve", "role": "viewer" });
    let made = t.post(&t.admin, route::OPERATOR_TOKENS, &body).await;
    assert_eq!(made.status, 201);
    let eve = Who::Token(made.json()["token"].as_str().unwrap().to_owned());
    assert_eq!(t.get(&eve, route::TASKS).await.status, 200);
    let path = route::fill(route::OPERATOR_TOKEN_REVOKE, &[&made.json()["id"].as_str().unwrap()]);
    assert_eq!(t.post(&t.admin, &path, &json!({})).await.status, 204);
    t.get(&eve, route::TASKS).await.problem(ProblemType::Unauthenticated);
}

#[tokio::test]
async fn a_token_is_revoked_once_and_what_is_no_token_is_not() {
    let t = TestCoordinator::start().await;
    let made = t.post(&t.admin, route::OPERATOR_TOKENS, &json!({ "name": "eve", "role": "viewer" })).await.json();
    let revoke = |id: &str| route::fill(route::OPERATOR_TOKEN_REVOKE, &[&id]);
    let revocations = async || {
        t.inner.engine.number_events().await.unwrap();
        let events = t.get(&t.admin, "/v1/audit?kind=operator_token_revoked").await.json();
        events["items"].as_array().unwrap().len()
    };
    let nobody = "01934c2e-7d3a-7b1c-9f00-0123456789ab";
    for query in ["", "?force=true"] {
        let path = format!("{}{query}", revoke(nobody));
        let detail = t.post(&t.admin, &path, &json!({})).await.problem(ProblemType::NotFound);
        assert!(detail.contains(&format!("there is no operator token {nobody}")), "{detail}");
    }
    assert_eq!(revocations().await, 0);
    for _ in 0..2 {
        let path = revoke(made["id"].as_str().unwrap());
        assert_eq!(t.post(&t.admin, &path, &json!({})).await.status, 204);
        assert_eq!(revocations().await, 1);
    }
}

#[tokio::test]
async fn the_last_admin_token_is_revoked_by_force_only() {
    let t = TestCoordinator::start().await;
    let made = t.post(&t.admin, route::OPERATOR_TOKENS, &json!({ "name": "eve", "role": "admin" })).await.json();
    let eve = Who::Token(made["token"].as_str().unwrap().to_owned());
    let tokens = t.get(&eve, route::OPERATOR_TOKENS).await.json();
    let id = |name: &str| {
        let found = tokens["items"].as_array().unwrap().iter().find(|token| token["name"] == name).unwrap();
        found["id"].as_str().unwrap().to_owned()
    };
    let revoke = |id: &str| route::fill(route::OPERATOR_TOKEN_REVOKE, &[&id]);
    assert_eq!(t.post(&eve, &revoke(&id("admin")), &json!({})).await.status, 204);
    let detail = t.post(&eve, &revoke(&id("eve")), &json!({})).await.problem(ProblemType::Conflict);
    assert!(detail.contains("last admin token") && detail.contains("force=true"), "{detail}");
    assert_eq!(t.get(&eve, route::OPERATOR_TOKENS).await.status, 200, "it is good as before");
    // Other roles may be revoked; a revoked admin is not counted as an admin.
    assert_eq!(t.post(&eve, &revoke(&id("operator")), &json!({})).await.status, 204);
    assert_eq!(t.post(&eve, &revoke(&id("admin")), &json!({})).await.status, 204);
    assert_eq!(t.post(&eve, &format!("{}?force=true", revoke(&id("eve"))), &json!({})).await.status, 204);
    t.get(&eve, route::OPERATOR_TOKENS).await.problem(ProblemType::Unauthenticated);
}

#[tokio::test]
async fn a_token_counts_until_it_expires() {
    let t = TestCoordinator::start().await;
    let body = json!({ "name": "eve", "role": "viewer", "valid_for_ms": 60_000 });
    let made = t.post(&t.admin, route::OPERATOR_TOKENS, &body).await.json();
    let eve = Who::Token(made["token"].as_str().unwrap().to_owned());
    let expires_at = json!(t.now().0 + 60_000);
    assert_eq!(made["expires_at"], expires_at);
    t.advance(Duration::from_millis(59_999));
    assert_eq!(t.get(&eve, route::TASKS).await.status, 200);
    t.advance(Duration::from_millis(1));
    let refused = t.get(&eve, route::TASKS).await;
    let detail = refused.problem(ProblemType::Unauthenticated);
    assert!(detail.contains("expired at 2025-06-15T15:07:40Z"), "{detail}");
    assert_eq!(refused.headers["www-authenticate"], "Bearer");
    let tokens = t.get(&t.admin, route::OPERATOR_TOKENS).await.json();
    let told: Vec<_> = tokens["items"].as_array().unwrap().iter().map(|token| token.get("expires_at")).collect();
    assert_eq!(told.iter().flatten().copied().collect::<Vec<_>>(), [&expires_at], "of one alone");
}

#[tokio::test]
async fn a_token_that_would_never_count_is_refused() {
    let t = TestCoordinator::start().await;
    for valid_for_ms in [0, 31_622_400_001_u64] {
        let body = json!({ "name": "eve", "role": "viewer", "valid_for_ms": valid_for_ms });
        let detail = t.post(&t.admin, route::OPERATOR_TOKENS, &body).await.problem(ProblemType::InvalidValue);
        assert!(detail.contains("366 days"), "{detail}");
    }
    let body = json!({ "name": "eve", "role": "viewer", "valid_for_ms": -1 });
    t.post(&t.admin, route::OPERATOR_TOKENS, &body).await.problem(ProblemType::MalformedRequest);
    let body = json!({ "name": "eve", "role": "viewer", "valid_for_ms": 31_622_400_000_u64 });
    assert_eq!(t.post(&t.admin, route::OPERATOR_TOKENS, &body).await.status, 201);
}

#[tokio::test]
async fn an_admin_token_that_expires_does_not_replace_the_last_one() {
    let t = TestCoordinator::start().await;
    let body = json!({ "name": "eve", "role": "admin", "valid_for_ms": 3_600_000 });
    let made = t.post(&t.admin, route::OPERATOR_TOKENS, &body).await.json();
    let tokens = t.get(&t.admin, route::OPERATOR_TOKENS).await.json();
    let last = tokens["items"].as_array().unwrap().iter().find(|token| token["name"] == "admin").unwrap();
    let revoke = |id: &serde_json::Value| route::fill(route::OPERATOR_TOKEN_REVOKE, &[&id.as_str().unwrap()]);
    let detail = t.post(&t.admin, &revoke(&last["id"]), &json!({})).await.problem(ProblemType::Conflict);
    assert!(detail.contains("does not expire"), "{detail}");
    assert_eq!(t.post(&t.admin, &revoke(&made["id"]), &json!({})).await.status, 204, "what expires may go");
}
