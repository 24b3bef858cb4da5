//! A token is exchanged for a certificate.

use std::time::Duration;

use axum::body::Body;
use http::Request;
use serde_json::json;
use wire::participant::EnrollReply;
use wire::problem::ProblemType;
use wire::route;

use crate::support::{TestCoordinator, Who, config, key_and_csr, who};

#[tokio::test]
async fn a_token_buys_a_certificate_once() {
    let t = TestCoordinator::start().await;
    let body = json!({
        "token": t.enrollment_token().await,
        "csr_pem": key_and_csr().1,
        "name": "north",
        "labels": { "region": "eu" },
    });
    let reply: EnrollReply = t.post(&Who::Nobody, route::ENROLL, &body).await.read();
    assert_eq!(reply.name, "north");
    assert_eq!(reply.expires_at, t.now().plus(Duration::from_secs(7 * 24 * 3600)));
    assert!(reply.renew_at < reply.expires_at);
    assert_eq!(reply.certificate_pem.matches("BEGIN CERTIFICATE").count(), 2);

    let again: EnrollReply = t.post(&Who::Nobody, route::ENROLL, &body).await.read();
    assert_eq!(again, reply, "the answer may have got lost: same token and key, same answer");
    let other_key = json!({ "token": body["token"], "csr_pem": key_and_csr().1, "name": "south" });
    let detail = t.post(&Who::Nobody, route::ENROLL, &other_key).await.problem(ProblemType::EnrollmentRefused);
    assert!(detail.contains("used"), "{detail}");

    let seen = t.get(&t.viewer, &format!("/v1/participants/{}", reply.participant)).await.json();
    assert_eq!((&seen["name"], &seen["labels"]["region"]), (&json!("north"), &json!("eu")));
}

#[tokio::test]
async fn unknown_and_expired_tokens_are_refused() {
    let t = TestCoordinator::start().await;
    let csr = key_and_csr().1;
    let attempt = |token: String| json!({ "token": token, "csr_pem": csr });
    t.post(&Who::Nobody, route::ENROLL, &attempt("guess".into())).await.problem(ProblemType::EnrollmentRefused);
    t.post(&Who::Nobody, route::ENROLL, &attempt("x".repeat(1000))).await.problem(ProblemType::EnrollmentRefused);
    let reply = t.post(&t.operator, route::ENROLLMENT_TOKENS, &json!({ "valid_for_ms": 1000 })).await.json();
    t.advance(Duration::from_secs(1));
    let token = reply["token"].as_str().unwrap().to_owned();
    let detail = t.post(&Who::Nobody, route::ENROLL, &attempt(token)).await.problem(ProblemType::EnrollmentRefused);
    assert!(detail.contains("expired"), "{detail}");
}

#[tokio::test]
async fn a_refused_enrolment_leaves_the_token_good() {
    let t = TestCoordinator::start().await;
    t.enroll("taken").await;
    let token = t.enrollment_token().await;
    let attempt = |name: &str, csr: String| json!({ "token": token, "csr_pem": csr, "name": name });
    let post = async |body| t.post(&Who::Nobody, route::ENROLL, &body).await;
    post(attempt("taken", key_and_csr().1)).await.problem(ProblemType::Conflict);
    post(attempt("no blanks", key_and_csr().1)).await.problem(ProblemType::InvalidValue);
    post(attempt("free", "not a request".into())).await.problem(ProblemType::InvalidValue);
    let other = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    let csr = rcgen::CertificateParams::default().serialize_request(&other).unwrap().pem().unwrap();
    let detail = post(attempt("free", csr)).await.problem(ProblemType::InvalidValue);
    assert!(detail.contains("Ed25519"), "{detail}");
    assert_eq!(post(attempt("free", key_and_csr().1)).await.status, 200);
}

#[tokio::test]
async fn what_the_token_says_wins() {
    let t = TestCoordinator::start().await;
    let token = json!({ "name": "given", "labels": { "region": "eu" } });
    let token = t.post(&t.operator, route::ENROLLMENT_TOKENS, &token).await.json()["token"].clone();
    let body = json!({
        "token": token, "csr_pem": key_and_csr().1, "name": "chosen", "labels": { "region": "us", "disk": "ssd" },
    });
    let reply: EnrollReply = t.post(&Who::Nobody, route::ENROLL, &body).await.read();
    assert_eq!(reply.name, "given");
    let seen = t.get(&t.viewer, &format!("/v1/participants/{}", reply.participant)).await.json();
    assert_eq!(seen["labels"], json!({ "region": "eu", "disk": "ssd" }));
}

#[tokio::test]
async fn bodies_that_cannot_be_read_are_refused() {
    let t = TestCoordinator::start().await;
    let post = async |kind: &str, body: String| {
        let request = Request::post(route::ENROLL).header("content-type", kind).body(Body::from(body)).unwrap();
        t.send(&Who::Nobody, request).await
    };
    post("text/plain", "{}".into()).await.problem(ProblemType::UnsupportedMediaType);
    post("application/json", "{".into()).await.problem(ProblemType::MalformedRequest);
    let detail =
        post("application/json; charset=utf-8", r#"{"tokn":"x"}"#.into()).await.problem(ProblemType::MalformedRequest);
    assert!(detail.contains("tokn"), "{detail}");
    post("application/json", " ".repeat((1 << 20) + 1)).await.problem(ProblemType::TooLarge);
}

#[tokio::test]
async fn a_participant_whose_certificate_ended_comes_back_as_itself_with_a_token_made_for_it() {
    let t = TestCoordinator::start().await;
    let (id, old) = t.enroll("one").await;
    let (other, _) = t.enroll("two").await;
    let poll = json!({ "examples": 10, "wait_ms": 0 });
    t.advance(Duration::from_secs(8 * 24 * 3600));
    t.post(&old, route::CHECK_IN, &poll).await.problem(ProblemType::CertificateExpired);

    let make = async |body| t.post(&t.operator, route::ENROLLMENT_TOKENS, &body).await;
    make(json!({ "participant": id, "name": "three" })).await.problem(ProblemType::InvalidValue);
    make(json!({ "participant": id, "labels": { "a": "b" } })).await.problem(ProblemType::InvalidValue);
    make(json!({ "participant": uuid::Uuid::from_u128(1) })).await.problem(ProblemType::NotFound);
    let token = make(json!({ "participant": id })).await.json()["token"].clone();
    let unused = make(json!({ "participant": id })).await.json()["token"].clone();
    // Its own name is accepted, and another is rejected.
    let body = json!({ "token": token, "csr_pem": key_and_csr().1, "name": "one" });
    let reply: EnrollReply = t.post(&Who::Nobody, route::ENROLL, &body).await.read();
    assert_eq!((reply.participant, reply.name.as_str()), (id, "one"));
    let again: EnrollReply = t.post(&Who::Nobody, route::ENROLL, &body).await.read();
    assert_eq!(again, reply, "the answer may have got lost");
    assert_eq!(t.post(&who(&reply), route::CHECK_IN, &poll).await.status, 200);
    t.post(&old, route::CHECK_IN, &poll).await.problem(ProblemType::Unauthenticated);

    t.post(&t.operator, &route::fill(route::PARTICIPANT_REVOKE, &[&id]), &json!({})).await;
    make(json!({ "participant": id })).await.problem(ProblemType::Conflict);
    let body = json!({ "token": unused, "csr_pem": key_and_csr().1 });
    let detail = t.post(&Who::Nobody, route::ENROLL, &body).await.problem(ProblemType::EnrollmentRefused);
    assert!(detail.contains("revoked"), "{detail}");
    assert_eq!(make(json!({ "participant": other })).await.status, 201);
}

#[tokio::test]
async fn a_body_that_never_ends_is_not_waited_for() {
    let mut config = config();
    config.http.request_timeout_ms = 50;
    let t = TestCoordinator::with(&config).await;
    let never = futures_util::stream::pending::<Result<Vec<u8>, std::io::Error>>();
    let request = Request::post(route::ENROLL).header("content-type", "application/json");
    let reply = t.send(&Who::Nobody, request.body(Body::from_stream(never)).unwrap()).await;
    reply.problem(ProblemType::TooSlow);
}

#[tokio::test]
async fn a_revoked_participants_name_is_free_for_a_new_one() {
    let t = TestCoordinator::start().await;
    let (first, _) = t.enroll("ward").await;
    let named = json!({ "name": "ward" });
    t.post(&t.operator, route::ENROLLMENT_TOKENS, &named).await.problem(ProblemType::Conflict);
    let revoke = route::fill(route::PARTICIPANT_REVOKE, &[&first]);
    assert_eq!(t.post(&t.operator, &revoke, &json!({})).await.status, 200);
    let token = t.post(&t.operator, route::ENROLLMENT_TOKENS, &named).await.json()["token"].clone();
    let body = json!({ "token": token, "csr_pem": key_and_csr().1 });
    let second: EnrollReply = t.post(&Who::Nobody, route::ENROLL, &body).await.read();
    assert_eq!(second.name, "ward");
    assert_ne!(second.participant, first, "somebody else");
    let view = async |id| t.get(&t.viewer, &format!("/v1/participants/{id}")).await.json();
    let revoked = view(first).await;
    assert_eq!(revoked["name"], format!("ward (revoked {first})"));
    assert!(revoked["revoked_at"].is_u64(), "{revoked}");
    assert_eq!(view(second.participant).await["revoked_at"], json!(null));
    t.post(&t.operator, route::ENROLLMENT_TOKENS, &named).await.problem(ProblemType::Conflict);
}
