//! Authorization: certificates, tokens, roles, rates.

use std::time::Duration;

use axum::body::Body;
use http::{Method, Request};
use serde_json::json;
use test_servers::postgres::Cluster;
use wire::admin::Role;
use wire::problem::ProblemType;
use wire::route;

use crate::support::{Reply, TestCoordinator, Who, config, key_and_csr, small_task, who};

const ALL: [Method; 4] = [Method::GET, Method::POST, Method::PUT, Method::DELETE];

#[tokio::test]
async fn every_route_asks_who_is_there() {
    let t = TestCoordinator::start().await;
    let document = t.get(&Who::Nobody, route::OPENAPI).await.json();
    let mut asked = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        for method in ALL {
            let described = &item[method.as_str().to_lowercase()];
            if described["security"].is_null() {
                continue;
            }
            // Invalid ids and numbers in the path would be rejected first; these are well-formed.
            let path = path.replace("{round}", "1").replace("{version}", "1");
            let path = ["{task}", "{participant}", "{token}"]
                .iter()
                .fold(path, |path, name| path.replace(name, "00000000-0000-4000-8000-000000000000"));
            t.call(&Who::Nobody, method, &path).await.problem(ProblemType::Unauthenticated);
            asked += 1;
        }
    }
    assert_eq!(asked, 63, "operations that need somebody");
}

#[tokio::test]
async fn roles_allow_what_they_say() {
    let t = TestCoordinator::start().await;
    t.create_task(&small_task()).await;
    let pause = async |who: &Who| t.post(who, "/v1/tasks/small/pause", &json!({})).await;
    let detail = pause(&t.viewer).await.problem(ProblemType::Forbidden);
    assert!(detail.contains("operator") && detail.contains("viewer"), "{detail}");
    assert_eq!(pause(&t.operator).await.status, 200);
    assert_eq!(pause(&t.admin).await.status, 200);
    t.get(&t.operator, route::OPERATOR_TOKENS).await.problem(ProblemType::Forbidden);
    assert_eq!(t.get(&t.admin, route::OPERATOR_TOKENS).await.json()["items"].as_array().unwrap().len(), 3);
    let predictor = t.inner.create_operator_token("ward", Role::Predictor).await.unwrap().token;
    let predictor = Who::Token(predictor);
    t.get(&predictor, route::TASKS).await.problem(ProblemType::Forbidden);
    assert_eq!(t.get(&predictor, route::OPERATOR_TOKEN).await.json()["role"], "predictor");
    let (_, participant) = t.enroll("a").await;
    t.get(&participant, route::TASKS).await.problem(ProblemType::Unauthenticated);
    t.post(&t.admin, route::CHECK_IN, &json!({ "examples": 1 })).await.problem(ProblemType::Unauthenticated);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_coordinator_does_to_a_certificate_holds_at_once_for_another() {
    let Some(cluster) = Cluster::shared() else { return };
    let mut config = config();
    config.database.url = cluster.url(&cluster.create_database());
    let here = TestCoordinator::with(&config).await;
    let there = here.beside(&config, 2).await;
    here.create_task(&small_task()).await;
    let (_, old) = here.enroll("renewed").await;
    let (id, revoked) = here.enroll("revoked").await;
    // For any request, with and without a task.
    let polls = [json!({ "examples": 10, "task": "small" }), json!({ "examples": 10, "task": "none" })];
    let asks = async |t: &TestCoordinator, who: &Who| {
        let mut replies = Vec::new();
        for poll in &polls {
            replies.push(t.post(who, route::CHECK_IN, poll).await);
        }
        replies.push(t.post(who, route::RENEW, &json!({ "csr_pem": "none" })).await);
        replies
    };
    let is_known = |replies: Vec<Reply>| {
        let known: Vec<_> = replies.iter().map(|reply| ![401, 403].contains(&reply.status.as_u16())).collect();
        assert!(known.iter().all(|is_known| *is_known == known[0]), "{known:?}");
        known[0]
    };
    for who in [&old, &revoked] {
        assert!(is_known(asks(&here, who).await) && is_known(asks(&there, who).await));
    }
    let new = who(&there.post(&old, route::RENEW, &json!({ "csr_pem": key_and_csr().1 })).await.read());
    assert!(is_known(asks(&here, &old).await), "the new one has not been used");
    assert!(is_known(asks(&there, &new).await));
    for reply in asks(&here, &old).await {
        reply.problem(ProblemType::Unauthenticated);
    }
    assert!(is_known(asks(&here, &new).await));
    let revoke = route::fill(route::PARTICIPANT_REVOKE, &[&id]);
    assert_eq!(there.post(&there.operator, &revoke, &json!({})).await.status, 200);
    for reply in asks(&here, &revoked).await {
        reply.problem(ProblemType::CertificateRevoked);
    }
    here.inner.stop().await;
    there.inner.stop().await;
}

/// Unauthenticated callers get no validation details.
#[tokio::test]
async fn a_check_in_is_judged_after_whoever_sends_it() {
    let t = TestCoordinator::start().await;
    let (id, revoked) = t.enroll("a").await;
    let (_, member) = t.enroll("b").await;
    let revoke = route::fill(route::PARTICIPANT_REVOKE, &[&id]);
    assert_eq!(t.post(&t.operator, &revoke, &json!({})).await.status, 200);
    for (request, problem) in [
        (json!({ "examples": "many" }), ProblemType::MalformedRequest),
        (json!({ "examples": 1, "task": "no name" }), ProblemType::InvalidValue),
    ] {
        t.post(&Who::Nobody, route::CHECK_IN, &request).await.problem(ProblemType::Unauthenticated);
        t.post(&revoked, route::CHECK_IN, &request).await.problem(ProblemType::CertificateRevoked);
        t.post(&member, route::CHECK_IN, &request).await.problem(problem);
    }
}

#[tokio::test]
async fn an_expired_certificate_is_told_so() {
    let t = TestCoordinator::start().await;
    let (_, a) = t.enroll("a").await;
    t.advance(Duration::from_secs(7 * 24 * 3600));
    let detail = t.post(&a, route::CHECK_IN, &json!({ "examples": 1 })).await.problem(ProblemType::CertificateExpired);
    assert!(detail.contains("enrol anew") && !detail.contains("ms"), "{detail}");
    // The test's clock begins at 1,750,000,000 s; certificates last a week.
    assert!(detail.contains("2025-06-22T15:06:40Z"), "{detail}");
}

#[tokio::test]
async fn whoever_asks_too_often_is_told_when_to_come_back() {
    let mut config = config();
    config.http.operator_rate = 2;
    config.http.participant_rate = 2;
    config.http.address_rate = 2;
    config.http.burst_s = 5;
    let t = TestCoordinator::with(&config).await;
    let mut served = 0;
    let refused = loop {
        let reply = t.get(&t.viewer, route::TASKS).await;
        if reply.status != 200 {
            break reply;
        }
        served += 1;
    };
    assert_eq!(served, 10);
    refused.problem(ProblemType::RateLimited);
    assert_eq!(refused.headers["retry-after"], "1");
    assert_eq!(t.get(&t.operator, route::TASKS).await.status, 200, "others are served");
    t.advance(Duration::from_secs(1));
    assert_eq!(t.get(&t.viewer, route::TASKS).await.status, 200);
    // Guesses are counted against their address.
    let guess = Who::Token("guess".into());
    for _ in 0..10 {
        t.get(&guess, route::TASKS).await.problem(ProblemType::Unauthenticated);
    }
    t.get(&guess, route::TASKS).await.problem(ProblemType::RateLimited);
    t.post(&Who::Nobody, route::ENROLL, &json!({})).await.problem(ProblemType::RateLimited);
}

#[tokio::test]
async fn another_version_of_the_contract_is_refused() {
    let t = TestCoordinator::start().await;
    for (version, fine) in [("1", true), ("2", true), ("3", false), ("one", false)] {
        let request = Request::get(route::HEALTHZ).header("tributary-protocol", version).body(Body::empty()).unwrap();
        let reply = t.send(&Who::Nobody, request).await;
        if fine {
            assert_eq!(reply.status, 200);
        } else {
            reply.problem(ProblemType::UnsupportedProtocol);
        }
    }
}
