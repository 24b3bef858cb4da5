//! A request for a secret is executed once per key.

use axum::body::Body;
use http::Request;
use serde_json::{Value, json};
use wire::headers::IDEMPOTENCY_KEY;
use wire::problem::ProblemType;
use wire::route;

use crate::support::{Reply, TestCoordinator, Who};

async fn create(t: &TestCoordinator, who: &Who, path: &str, key: &str, body: &Value) -> Reply {
    let request = Request::post(path).header("content-type", "application/json").header(IDEMPOTENCY_KEY, key);
    t.send(who, request.body(Body::from(body.to_string())).unwrap()).await
}

#[tokio::test]
async fn a_repeat_makes_no_second_token_and_tells_of_the_first() {
    let t = TestCoordinator::start().await;
    let tokens = async || t.get(&t.admin, route::OPERATOR_TOKENS).await.json()["items"].as_array().unwrap().len();
    let before = tokens().await;
    let ann = json!({ "name": "ann", "role": "viewer" });
    let first = create(&t, &t.admin, route::OPERATOR_TOKENS, "k", &ann).await;
    assert_eq!(first.status, 201);
    let (id, secret) = (first.json()["id"].clone(), first.json()["token"].clone());
    let repeat = create(&t, &t.admin, route::OPERATOR_TOKENS, "k", &ann).await;
    let detail = repeat.problem(ProblemType::Conflict);
    assert!(detail.contains(id.as_str().unwrap()), "{detail}");
    assert!(!String::from_utf8_lossy(&repeat.body).contains(secret.as_str().unwrap()));
    let bob = json!({ "name": "bob", "role": "viewer" });
    let detail = create(&t, &t.admin, route::OPERATOR_TOKENS, "k", &bob).await.problem(ProblemType::Conflict);
    assert!(detail.contains("another body"), "{detail}");
    assert_eq!(tokens().await, before + 1);
    create(&t, &t.admin, route::OPERATOR_TOKENS, "", &bob).await.problem(ProblemType::InvalidValue);
    assert_eq!(create(&t, &t.admin, route::OPERATOR_TOKENS, "other", &bob).await.status, 201);

    // Keys of different requests, and of different operators, are separate.
    let first = create(&t, &t.admin, route::ENROLLMENT_TOKENS, "k", &json!({})).await;
    assert_eq!(first.status, 201);
    let repeat = create(&t, &t.admin, route::ENROLLMENT_TOKENS, "k", &json!({})).await;
    assert!(repeat.problem(ProblemType::Conflict).contains(first.json()["id"].as_str().unwrap()));
    assert_eq!(create(&t, &t.operator, route::ENROLLMENT_TOKENS, "k", &json!({})).await.status, 201);
}

#[tokio::test]
async fn a_refused_request_leaves_its_key_free() {
    let t = TestCoordinator::start().await;
    t.enroll("a").await;
    let taken = json!({ "name": "a" });
    for _ in 0..2 {
        let refused = create(&t, &t.operator, route::ENROLLMENT_TOKENS, "k", &taken).await;
        assert!(refused.problem(ProblemType::Conflict).contains("called \"a\""));
    }
    assert_eq!(create(&t, &t.operator, route::ENROLLMENT_TOKENS, "k", &json!({})).await.status, 201);
}
