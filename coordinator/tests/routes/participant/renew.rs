//! A certificate is exchanged for the next, for a new key.

use serde_json::json;
use wire::participant::EnrollReply;
use wire::problem::ProblemType;
use wire::route;

use crate::support::{TestCoordinator, Who, key_and_csr, who};

#[tokio::test]
async fn a_renewed_certificate_is_the_same_participants_and_the_old_one_stays_good() {
    let t = TestCoordinator::start().await;
    let (id, old) = t.enroll("one").await;
    let renew = async |as_who: &Who| t.post(as_who, route::RENEW, &json!({ "csr_pem": key_and_csr().1 })).await;
    // Even if several responses are lost, the participant can still renew.
    for _ in 0..3 {
        assert_eq!(renew(&old).await.status, 200);
    }
    let reply: EnrollReply = renew(&old).await.read();
    let new = who(&reply);
    assert_eq!((reply.participant, reply.name.as_str()), (id, "one"));
    // Once the new one is used for that, the old one is rejected.
    assert_eq!(renew(&new).await.status, 200);
    renew(&old).await.problem(ProblemType::Unauthenticated);
    assert_eq!(renew(&new).await.status, 200);
    renew(&Who::Nobody).await.problem(ProblemType::Unauthenticated);
}

/// A thief of the current key must not get the next certificate.
#[tokio::test]
async fn a_renewal_is_for_a_new_key() {
    let t = TestCoordinator::start().await;
    let (_, csr) = key_and_csr();
    let old = who(&t.enroll_with("one", &csr).await);
    let detail = t.post(&old, route::RENEW, &json!({ "csr_pem": csr })).await.problem(ProblemType::InvalidValue);
    assert!(detail.contains("for a new key"), "{detail}");
    let renewed = t.post(&old, route::RENEW, &json!({ "csr_pem": key_and_csr().1 })).await;
    assert_eq!(renewed.status, 200, "and the old one holds");
}

#[tokio::test]
async fn a_replaced_certificate_ends_with_the_first_use_of_the_new_one() {
    let t = TestCoordinator::start().await;
    let (id, old) = t.enroll("one").await;
    let poll = json!({ "examples": 10, "wait_ms": 0 });
    let renew = json!({ "csr_pem": key_and_csr().1 });
    let new = who(&t.post(&old, route::RENEW, &renew).await.read());
    // The response may be lost: the old certificate is still accepted.
    assert_eq!(t.post(&old, route::CHECK_IN, &poll).await.status, 200);
    assert_eq!(t.post(&new, route::CHECK_IN, &poll).await.status, 200);
    // The thief is rejected, gets no certificate, and cannot lock out the participant.
    t.post(&old, route::CHECK_IN, &poll).await.problem(ProblemType::Unauthenticated);
    t.post(&old, route::RENEW, &json!({ "csr_pem": key_and_csr().1 })).await.problem(ProblemType::Unauthenticated);
    assert_eq!(t.post(&new, route::CHECK_IN, &poll).await.status, 200);
    let next: EnrollReply = t.post(&new, route::RENEW, &json!({ "csr_pem": key_and_csr().1 })).await.read();
    assert_eq!(next.participant, id);
}
