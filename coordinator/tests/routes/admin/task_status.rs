//! Tasks are paused, resumed and cancelled, also twice.

use serde_json::json;
use wire::participant::CheckInReply;
use wire::problem::ProblemType;

use crate::support::{TestCoordinator, input, small_task};

#[tokio::test]
async fn pausing_stops_new_rounds_and_resuming_goes_on() {
    let t = TestCoordinator::start().await;
    t.create_task(&small_task()).await;
    let change = async |verb: &str| t.post(&t.operator, &format!("/v1/tasks/small/{verb}"), &json!({})).await;
    assert_eq!(change("pause").await.json()["status"], "PAUSED");
    assert_eq!(change("pause").await.json()["status"], "PAUSED", "asked twice");
    t.work().await;
    t.get(&t.viewer, "/v1/tasks/small/rounds/1").await.problem(ProblemType::NotFound);
    assert_eq!(change("resume").await.json()["status"], "ACTIVE");
    t.work().await;
    assert_eq!(t.get(&t.viewer, "/v1/tasks/small/rounds/1").await.status, 200);
    let cancelled = change("cancel").await.json();
    let history: Vec<_> = cancelled["history"].as_array().unwrap().iter().map(|line| line["status"].clone()).collect();
    assert_eq!(history, ["ACTIVE", "PAUSED", "ACTIVE", "CANCELLED"]);
    let detail = change("resume").await.problem(ProblemType::TaskStatus);
    assert!(detail.contains("CANCELLED"), "{detail}");
}

#[tokio::test]
async fn cancelling_ends_the_round_and_lets_the_cohort_go() {
    let t = TestCoordinator::start().await;
    t.create_task(&small_task()).await;
    let (a, b) = (t.enroll("a").await, t.enroll("b").await);
    let work = t.assigned(&[a.1.clone(), b.1]).await.remove(0);
    t.post(&t.operator, "/v1/tasks/small/cancel", &json!({})).await;
    let round = t.get(&t.viewer, "/v1/tasks/small/rounds/1").await.json();
    assert_eq!((&round["state"], &round["dropped"]), (&json!("CANCELLED"), &json!(0)));
    let cohort = t.get(&t.viewer, "/v1/tasks/small/rounds/1/assignments").await.json();
    assert!(cohort["items"].as_array().unwrap().iter().all(|item| item["state"] == "RELEASED"));
    t.send(&a.1, t.upload(&work, a.0, &input([1, 2, 3]))).await.problem(ProblemType::PhaseClosed);
    assert!(matches!(t.check_in(&a.1, "small").await, CheckInReply::TaskOver { .. }));
}
