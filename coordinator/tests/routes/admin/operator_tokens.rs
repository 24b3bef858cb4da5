//! Tokens of operators are made and revoked, the last admin's by force only.

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
    // Whoever is no admin may go, and what is no token, or is revoked already, is no admin.
    assert_eq!(t.post(&eve, &revoke(&id("operator")), &json!({})).await.status, 204);
    assert_eq!(t.post(&eve, &revoke(&id("admin")), &json!({})).await.status, 204);
    assert_eq!(t.post(&eve, &format!("{}?force=true", revoke(&id("eve"))), &json!({})).await.status, 204);
    t.get(&eve, route::OPERATOR_TOKENS).await.problem(ProblemType::Unauthenticated);
}
