//! A round stops waiting for excused participants.

use serde_json::json;
use wire::problem::ProblemType;
use wire::route;

use crate::support::{TestCoordinator, input, small_task};

#[tokio::test]
async fn an_excused_participant_is_not_waited_for() {
    let t = TestCoordinator::start().await;
    let task = t.create_task(&small_task()).await;
    let (a, b) = (t.enroll("a").await, t.enroll("b").await);
    let work = t.assigned(&[a.1.clone(), b.1.clone()]).await.remove(0);
    assert_eq!(t.send(&a.1, t.upload(&work, a.0, &input([1, 2, 3]))).await.status, 200);
    let excuse = async |who: &wire::ParticipantId| {
        t.post(&t.operator, &route::fill(route::EXCUSE, &[&task, &1, who]), &json!({})).await
    };
    excuse(&a.0).await.problem(ProblemType::Conflict);
    excuse(&wire::ParticipantId(uuid::Uuid::from_u128(1))).await.problem(ProblemType::NotFound);
    assert_eq!(excuse(&b.0).await.status, 204);
    assert_eq!(excuse(&b.0).await.status, 204);
    t.work().await;
    let round = t.get(&t.viewer, "/v1/tasks/small/rounds/1").await.json();
    assert_eq!((&round["state"], &round["dropped_why"]), (&json!("COMPLETED"), &json!({ "EXCUSED": 1 })));
}
