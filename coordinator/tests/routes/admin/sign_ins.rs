//! A cookie stands for a token while both are valid, and only in requests of the dashboard.

use std::time::Duration;

use axum::body::Body;
use http::{Method, Request};
use serde_json::{Value, json};
use wire::admin::Role;
use wire::problem::ProblemType;
use wire::route;

use crate::support::{Reply, TestCoordinator, Who, config, small_task};

/// The dashboard's header in addition to the cookie.
const OURS: &[(&str, &str)] = &[("tributary-request", "dashboard"), ("sec-fetch-site", "same-origin")];

fn secret(who: &Who) -> &str {
    let Who::Token(token) = who else { panic!("{who:?} has no token") };
    token
}

async fn send(t: &TestCoordinator, method: Method, path: &str, headers: &[(&str, &str)], body: &Value) -> Reply {
    let mut request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    t.send(&Who::Nobody, request.body(Body::from(body.to_string())).unwrap()).await
}

struct Browser<'t> {
    t: &'t TestCoordinator,
    cookie: String,
}

impl<'t> Browser<'t> {
    async fn of(t: &'t TestCoordinator, who: &Who) -> Self {
        let reply = send(t, Method::POST, route::SIGN_INS, OURS, &json!({ "token": secret(who) })).await;
        assert_eq!(reply.status, 201, "{reply:?}");
        let set = reply.headers["set-cookie"].to_str().unwrap();
        for guard in ["; Path=/;", "; Secure", "; HttpOnly", "; SameSite=Strict", "; Max-Age=43200"] {
            assert!(set.contains(guard), "{set}");
        }
        Self { t, cookie: set.split(';').next().unwrap().to_owned() }
    }

    async fn call(&self, method: Method, path: &str, headers: &[(&str, &str)]) -> Reply {
        let mut all = vec![("cookie", self.cookie.as_str())];
        all.extend(headers);
        send(self.t, method, path, &all, &json!({})).await
    }

    async fn get(&self, path: &str) -> Reply {
        self.call(Method::GET, path, &[]).await
    }
}

#[tokio::test]
async fn a_sign_in_is_its_token_in_a_browser() {
    let t = TestCoordinator::start().await;
    t.create_task(&small_task()).await;
    let browser = Browser::of(&t, &t.operator).await;
    let me = browser.get(route::SIGN_IN).await.json();
    let lasts = me["expires_at"].as_i64().unwrap() - t.now().0;
    assert_eq!((&me["name"], &me["role"], lasts), (&json!("operator"), &json!("operator"), 12 * 3600 * 1000));
    assert_eq!(browser.get(route::TASKS).await.json()["items"][0]["name"], "small");
    let paused = browser.call(Method::POST, "/v1/tasks/small/pause", OURS).await;
    assert_eq!(paused.json()["status"], "PAUSED");
    assert_eq!(browser.get("/v1/tasks/small/models/0/parameters").await.status, 200);
    // Its name among other cookies, and a token in the same request, which takes precedence.
    let both = browser.call(Method::GET, route::TASKS, &[("authorization", "Bearer guess")]).await;
    both.problem(ProblemType::Unauthenticated);
    t.get(&t.operator, route::SIGN_IN).await.problem(ProblemType::NotFound);

    let out = browser.call(Method::DELETE, route::SIGN_IN, OURS).await;
    assert_eq!(out.status, 204);
    assert!(out.headers["set-cookie"].to_str().unwrap().starts_with("__Host-tributary=; Path=/; Max-Age=0;"));
    browser.get(route::TASKS).await.problem(ProblemType::Unauthenticated);
    browser.get(route::SIGN_IN).await.problem(ProblemType::Unauthenticated);
}

#[tokio::test]
async fn another_site_changes_nothing_with_a_cookie() {
    let t = TestCoordinator::start().await;
    t.create_task(&small_task()).await;
    let browser = Browser::of(&t, &t.admin).await;
    let forged: [&[(&str, &str)]; 5] = [
        &[],
        &[("sec-fetch-site", "same-origin")],
        &[("tributary-request", "form")],
        &[("tributary-request", "dashboard"), ("sec-fetch-site", "cross-site")],
        &[("tributary-request", "dashboard"), ("sec-fetch-site", "same-site")],
    ];
    for headers in forged {
        for (method, path) in [
            (Method::POST, "/v1/tasks/small/cancel"),
            (Method::POST, route::ENROLLMENT_TOKENS),
            (Method::DELETE, route::SIGN_IN),
        ] {
            browser.call(method, path, headers).await.problem(ProblemType::Forbidden);
        }
        // It also cannot sign in another operator.
        let body = json!({ "token": secret(&t.viewer) });
        send(&t, Method::POST, route::SIGN_INS, headers, &body).await.problem(ProblemType::Forbidden);
    }
    assert_eq!(browser.get("/v1/tasks/small").await.json()["status"], "ACTIVE");
}

#[tokio::test]
async fn a_token_for_predictions_signs_nobody_in() {
    let t = TestCoordinator::start().await;
    let token = t.inner.create_operator_token("ward", Role::Predictor).await.unwrap().token;
    let reply = send(&t, Method::POST, route::SIGN_INS, OURS, &json!({ "token": token })).await;
    reply.problem(ProblemType::Forbidden);
}

#[tokio::test]
async fn a_revoked_token_ends_its_sign_ins_at_once() {
    let t = TestCoordinator::start().await;
    let made = t.post(&t.admin, route::OPERATOR_TOKENS, &json!({ "name": "eve", "role": "viewer" })).await.json();
    let eve = Who::Token(made["token"].as_str().unwrap().to_owned());
    let (first, second) = (Browser::of(&t, &eve).await, Browser::of(&t, &eve).await);
    assert_eq!(first.get(route::TASKS).await.status, 200);
    let path = route::fill(route::OPERATOR_TOKEN_REVOKE, &[&made["id"].as_str().unwrap()]);
    assert_eq!(t.post(&t.admin, &path, &json!({})).await.status, 204);
    for browser in [first, second] {
        browser.get(route::TASKS).await.problem(ProblemType::Unauthenticated);
    }
    let again = send(&t, Method::POST, route::SIGN_INS, OURS, &json!({ "token": secret(&eve) })).await;
    again.problem(ProblemType::Unauthenticated);
}

#[tokio::test]
async fn a_sign_in_expires() {
    let t = TestCoordinator::start().await;
    let browser = Browser::of(&t, &t.viewer).await;
    t.advance(Duration::from_secs(12 * 3600) - Duration::from_millis(1));
    assert_eq!(browser.get(route::TASKS).await.status, 200);
    t.advance(Duration::from_millis(1));
    let detail = browser.get(route::TASKS).await.problem(ProblemType::Unauthenticated);
    assert!(detail.contains("sign in again"), "{detail}");
}

#[tokio::test]
async fn a_viewer_only_looks() {
    let t = TestCoordinator::start().await;
    t.create_task(&small_task()).await;
    let browser = Browser::of(&t, &t.viewer).await;
    let detail = browser.call(Method::POST, "/v1/tasks/small/pause", OURS).await.problem(ProblemType::Forbidden);
    assert!(detail.contains("operator") && detail.contains("viewer"), "{detail}");
    browser.get(route::OPERATOR_TOKENS).await.problem(ProblemType::Forbidden);
    assert_eq!(browser.get(route::PRESETS).await.status, 200);
}

#[tokio::test]
async fn wrong_tokens_and_cookies_are_counted_by_address() {
    let mut config = config();
    (config.http.address_rate, config.http.burst_s) = (2, 5);
    let t = TestCoordinator::with(&config).await;
    let body = json!({ "token": "guess" });
    for _ in 0..10 {
        send(&t, Method::POST, route::SIGN_INS, OURS, &body).await.problem(ProblemType::Unauthenticated);
    }
    let right = json!({ "token": secret(&t.admin) });
    send(&t, Method::POST, route::SIGN_INS, OURS, &right).await.problem(ProblemType::RateLimited);
    t.advance(Duration::from_secs(5));
    let guess = [("cookie", "__Host-tributary=guess")];
    for _ in 0..10 {
        send(&t, Method::GET, route::TASKS, &guess, &json!({})).await.problem(ProblemType::Unauthenticated);
    }
    send(&t, Method::GET, route::TASKS, &guess, &json!({})).await.problem(ProblemType::RateLimited);
}

#[tokio::test]
async fn what_is_no_sign_in_is_told_so() {
    let t = TestCoordinator::start().await;
    for (body, problem) in [
        (json!({}), ProblemType::MalformedRequest),
        (json!({ "token": 1 }), ProblemType::MalformedRequest),
        (json!({ "token": "", "role": "admin" }), ProblemType::MalformedRequest),
        (json!({ "token": "" }), ProblemType::Unauthenticated),
        (json!({ "token": "x".repeat(2 << 20) }), ProblemType::TooLarge),
    ] {
        send(&t, Method::POST, route::SIGN_INS, OURS, &body).await.problem(problem);
    }
}

#[tokio::test]
async fn a_sign_in_ends_with_a_token_that_expires_first() {
    let t = TestCoordinator::start().await;
    let body = json!({ "name": "eve", "role": "viewer", "valid_for_ms": 90_500 });
    let made = t.post(&t.admin, route::OPERATOR_TOKENS, &body).await.json();
    let reply = send(&t, Method::POST, route::SIGN_INS, OURS, &json!({ "token": made["token"] })).await;
    assert_eq!(reply.json()["expires_at"], made["expires_at"]);
    let set = reply.headers["set-cookie"].to_str().unwrap();
    assert!(set.contains("; Max-Age=91;"), "{set}");
    let browser = Browser { t: &t, cookie: set.split(';').next().unwrap().to_owned() };
    t.advance(Duration::from_millis(90_499));
    assert_eq!(browser.get(route::TASKS).await.status, 200);
    t.advance(Duration::from_millis(1));
    browser.get(route::TASKS).await.problem(ProblemType::Unauthenticated);
    let again = send(&t, Method::POST, route::SIGN_INS, OURS, &json!({ "token": made["token"] })).await;
    assert!(again.problem(ProblemType::Unauthenticated).contains("expired at"));
}

/// The log keeps each sign-in forever.
#[tokio::test]
async fn a_token_signs_in_so_often_at_once_and_then_once_a_second() {
    let t = TestCoordinator::start().await;
    let sign_in =
        async |who: &Who| send(&t, Method::POST, route::SIGN_INS, OURS, &json!({ "token": secret(who) })).await;
    for _ in 0..200 {
        assert_eq!(sign_in(&t.viewer).await.status, 201);
    }
    sign_in(&t.viewer).await.problem(ProblemType::RateLimited);
    assert_eq!(sign_in(&t.operator).await.status, 201, "each token has its own");
    assert_eq!(t.get(&t.viewer, route::TASKS).await.status, 200, "and may do all else");
    t.advance(Duration::from_secs(1));
    assert_eq!(sign_in(&t.viewer).await.status, 201);
    sign_in(&t.viewer).await.problem(ProblemType::RateLimited);
    t.inner.engine.number_events().await.unwrap();
    let log = t.get(&t.viewer, "/v1/audit?kind=signed_in&actor=viewer&limit=500").await.json();
    assert_eq!(log["items"].as_array().unwrap().len(), 201);
}

#[tokio::test]
async fn the_log_tells_who_signed_in_and_out_and_who_was_refused() {
    let t = TestCoordinator::start().await;
    let made = async |name: &str| {
        let body = json!({ "name": name, "role": "viewer", "valid_for_ms": 1000 });
        t.post(&t.admin, route::OPERATOR_TOKENS, &body).await.json()
    };
    let (revoked, expired) = (made("revoked").await, made("expired").await);
    let revoke = route::fill(route::OPERATOR_TOKEN_REVOKE, &[&revoked["id"].as_str().unwrap()]);
    assert_eq!(t.post(&t.admin, &revoke, &json!({})).await.status, 204);
    let browser = Browser::of(&t, &t.operator).await;
    assert_eq!(browser.call(Method::DELETE, route::SIGN_IN, OURS).await.status, 204);
    let refused = async |token: &Value| {
        let reply = send(&t, Method::POST, route::SIGN_INS, OURS, &json!({ "token": token })).await;
        reply.problem(ProblemType::Unauthenticated);
    };
    t.advance(Duration::from_secs(1));
    for _ in 0..3 {
        refused(&revoked["token"]).await;
        refused(&expired["token"]).await;
        refused(&json!("guess")).await;
    }
    t.advance(Duration::from_secs(60));
    refused(&revoked["token"]).await;
    t.inner.engine.number_events().await.unwrap();
    let log = t.get(&t.viewer, "/v1/audit?kind=signed_in,signed_out,sign_in_refused").await.json();
    let told: Vec<_> = log["items"]
        .as_array()
        .unwrap()
        .iter()
        .rev()
        .map(|entry| {
            let facts: Vec<_> = entry["body"].as_object().unwrap().keys().map(String::as_str).collect();
            (
                entry["kind"].as_str().unwrap(),
                entry["actor"]["name"].as_str().unwrap(),
                entry["body"]["reason"].as_str().unwrap_or_default(),
                facts,
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            ("signed_in", "operator", "", vec!["expires_at", "sign_in"]),
            ("signed_out", "operator", "", vec!["sign_in"]),
            ("sign_in_refused", "revoked", "revoked", vec!["reason"]),
            ("sign_in_refused", "expired", "expired", vec!["reason"]),
            ("sign_in_refused", "revoked", "revoked", vec!["reason"]),
        ]
    );
}
