//! A participant withdraws, and gets the statement about its contributions.

use serde_json::json;
use wire::ParticipantId;
use wire::contributions::{Contributions, SignedContributions};
use wire::inspect::ParticipantView;
use wire::problem::ProblemType;
use wire::route;

use crate::support::{TestCoordinator, Who, input, small_task};

async fn withdraw(t: &TestCoordinator, who: &Who) -> Contributions {
    t.post(who, route::WITHDRAW, &json!({})).await.read::<SignedContributions>().open().unwrap()
}

async fn shown(t: &TestCoordinator, participant: ParticipantId) -> ParticipantView {
    t.get(&t.viewer, &route::fill(route::PARTICIPANT, &[&participant])).await.read()
}

#[tokio::test]
async fn withdrawn_participant_is_revoked_by_itself() {
    let t = TestCoordinator::start().await;
    t.create_task(&small_task()).await;
    let (a, b) = (t.enroll("a").await, t.enroll("b").await);
    let work = t.assigned(&[a.1.clone(), b.1.clone()]).await.remove(0);
    assert_eq!(t.send(&a.1, t.upload(&work, a.0, &input([1, 2, 3]))).await.status, 200);
    let statement = withdraw(&t, &a.1).await;
    assert_eq!((statement.participant, statement.revoked_at), (a.0, Some(t.now())));
    assert_eq!(statement.tasks[0].open_rounds.len(), 1, "its update was accepted before");
    assert_eq!(shown(&t, a.0).await.revoked_at, Some(t.now()));
    assert_eq!(shown(&t, b.0).await.revoked_at, None);
    t.inner.engine.number_events().await.unwrap();
    let audit = t.get(&t.viewer, &format!("{}?kind=participant_revoked", route::AUDIT)).await.json();
    assert_eq!(audit["items"][0]["actor"], json!({ "by": "participant", "participant": a.0 }), "{audit}");

    // A revoked participant gets its statement again, and nothing else.
    let again = withdraw(&t, &a.1).await;
    assert_eq!((again.revoked_at, again.tasks), (statement.revoked_at, statement.tasks));
    t.post(&a.1, route::CHECK_IN, &json!({ "examples": 1 })).await.problem(ProblemType::CertificateRevoked);
    t.send(&a.1, t.upload(&work, a.0, &input([1, 2, 3]))).await.problem(ProblemType::CertificateRevoked);
    assert_eq!(t.post(&b.1, route::CHECK_IN, &json!({ "examples": 1 })).await.status, 200);
}

#[tokio::test]
async fn place_of_a_withdrawn_participant_is_free() {
    let t = TestCoordinator::start().await;
    t.create_task(&small_task()).await;
    let (a, b) = (t.enroll("a").await, t.enroll("b").await);
    let work = t.assigned(&[a.1.clone(), b.1.clone()]).await.remove(0);
    let statement = withdraw(&t, &b.1).await;
    assert_eq!(statement.tasks, Vec::new());
    t.send(&b.1, t.upload(&work, b.0, &input([1, 2, 3]))).await.problem(ProblemType::CertificateRevoked);
}

#[tokio::test]
async fn only_certified_participants_withdraw() {
    let t = TestCoordinator::start().await;
    let (id, _) = t.enroll("a").await;
    for who in [&Who::Nobody, &t.admin] {
        t.post(who, route::WITHDRAW, &json!({})).await.problem(ProblemType::Unauthenticated);
    }
    assert_eq!(shown(&t, id).await.revoked_at, None);
}

/// A statement computes the costs of ledgers: it must not be free to repeat.
#[tokio::test]
async fn repeated_withdrawals_are_limited() {
    let t = TestCoordinator::start().await;
    let (id, a) = t.enroll("a").await;
    let mut statuses = Vec::new();
    for _ in 0..40 {
        statuses.push(t.post(&a, route::WITHDRAW, &json!({})).await.status.as_u16());
    }
    assert_eq!((statuses[0], statuses[39]), (200, 429), "{statuses:?}");
    assert!(shown(&t, id).await.revoked_at.is_some());
    t.advance(std::time::Duration::from_secs(60));
    assert_eq!(withdraw(&t, &a).await.participant, id);
}
