//! Abandoned places.

use serde_json::json;
use wire::participant::CheckInReply;
use wire::problem::ProblemType;
use wire::route;

use crate::support::{TestCoordinator, input, small_task};

#[tokio::test]
async fn a_place_that_is_given_up_is_not_waited_for() {
    let t = TestCoordinator::start().await;
    t.create_task(&small_task()).await;
    let (a, b) = (t.enroll("a").await, t.enroll("b").await);
    let work = t.assigned(&[a.1.clone(), b.1.clone()]).await.remove(0);
    let path = route::abandon(work.task, work.round, a.0);
    let body = json!({ "attempt": 1, "reason": "conditions" });

    t.post(&b.1, &path, &body).await.problem(ProblemType::Forbidden);
    assert_eq!(t.post(&a.1, &path, &body).await.status, 204);
    assert_eq!(t.post(&a.1, &path, &body).await.status, 204, "said twice");
    assert!(matches!(t.check_in(&a.1, "small").await, CheckInReply::ComeBack { .. }));
    t.send(&a.1, t.upload(&work, a.0, &input([1, 2, 3]))).await.problem(ProblemType::NotAssigned);

    assert_eq!(t.send(&b.1, t.upload(&work, b.0, &input([1, 2, 3]))).await.status, 200);
    let path = route::abandon(work.task, work.round, b.0);
    t.post(&b.1, &path, &body).await.problem(ProblemType::Conflict);
    t.work().await;
    let round = t.get(&t.viewer, "/v1/tasks/small/rounds/1").await.json();
    assert_eq!((&round["state"], &round["dropped"]), (&json!("COMPLETED"), &json!(1)));
    assert_eq!(round["dropped_why"], json!({ "ABANDONED": 1 }));
    let cohort = t.get(&t.viewer, "/v1/tasks/small/rounds/1/assignments").await.json();
    let items = cohort["items"].as_array().unwrap();
    assert!(items.iter().any(|item| item["detail"] == "conditions" && item["name"] == "a"), "{items:?}");
    let metrics = String::from_utf8(t.get(&t.viewer, route::METRICS).await.body).unwrap();
    let dropped = "tributary_participants_dropped_total{phase=\"COLLECTING\",reason=\"conditions\"} ";
    assert!(metrics.contains(dropped), "{metrics}");
}

#[tokio::test]
async fn a_place_that_was_never_given_cannot_be_given_up() {
    let t = TestCoordinator::start().await;
    let task = t.create_task(&small_task()).await;
    let (id, a) = t.enroll("a").await;
    let body = json!({ "attempt": 1, "reason": "conditions" });
    t.post(&a, &route::abandon(task, 1, id), &body).await.problem(ProblemType::NotAssigned);
    let unknown = json!({ "attempt": 1, "reason": "bored" });
    t.post(&a, &route::abandon(task, 1, id), &unknown).await.problem(ProblemType::MalformedRequest);
}

#[tokio::test]
async fn what_a_participant_refused_is_shown_by_code_and_in_words() {
    for (refusal, detail) in [
        (Some("policy"), "refused: policy: the task is below what its app demands of secure aggregation"),
        (None, "refused: it did not say what, but its own log does"),
    ] {
        let t = TestCoordinator::start().await;
        t.create_task(&small_task()).await;
        let (a, b) = (t.enroll("a").await, t.enroll("b").await);
        let work = t.assigned(&[a.1.clone(), b.1.clone()]).await.remove(0);
        let mut body = json!({ "attempt": 1, "reason": "refused" });
        body["refusal"] = json!(refusal);
        assert_eq!(t.post(&a.1, &route::abandon(work.task, work.round, a.0), &body).await.status, 204);
        let cohort = t.get(&t.viewer, "/v1/tasks/small/rounds/1/assignments").await.json();
        let told = cohort["items"].as_array().unwrap().iter().find(|item| item["name"] == "a").unwrap();
        assert_eq!((&told["state"], &told["detail"]), (&json!("ABANDONED"), &json!(detail)));
    }
}
