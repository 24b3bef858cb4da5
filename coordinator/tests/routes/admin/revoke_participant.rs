//! A revoked certificate is rejected everywhere.

use std::time::Duration;

use serde_json::json;
use wire::problem::ProblemType;
use wire::route;

use crate::support::{TestCoordinator, Who};

#[tokio::test]
async fn a_revoked_certificate_is_refused_at_once() {
    let t = TestCoordinator::start().await;
    let (id, a) = t.enroll("a").await;
    let (_, b) = t.enroll("b").await;
    let check_in = async |who: &Who| t.post(who, route::CHECK_IN, &json!({ "examples": 1 })).await;
    assert_eq!(check_in(&a).await.status, 200, "and remembered from now on");
    let path = route::fill(route::PARTICIPANT_REVOKE, &[&id]);
    t.post(&t.viewer, &path, &json!({})).await.problem(ProblemType::Forbidden);
    let view = t.post(&t.operator, &path, &json!({})).await.json();
    assert_eq!(view["revoked_at"], json!(t.now().0));
    check_in(&a).await.problem(ProblemType::CertificateRevoked);
    assert_eq!(check_in(&b).await.status, 200);
    t.advance(Duration::from_secs(5));
    assert_eq!(t.post(&t.operator, &path, &json!({})).await.json()["revoked_at"], view["revoked_at"], "asked twice");
    let unknown = route::fill(route::PARTICIPANT_REVOKE, &[&wire::ParticipantId(uuid::Uuid::from_u128(9))]);
    t.post(&t.operator, &unknown, &json!({})).await.problem(ProblemType::NotFound);
}
