//! Tasks are paused, resumed and cancelled, also twice.

use federation::round::RoundState;
use serde_json::json;
use wire::participant::{CheckInReply, WaitingFor};
use wire::problem::ProblemType;
use wire::route;

use crate::support::secure::{PHASE, World};
use crate::support::{TestCoordinator, Who, input, small_task};

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
async fn a_round_that_selects_when_its_task_is_paused_takes_whoever_waits_for_any_task() {
    let t = TestCoordinator::start().await;
    t.create_task(&small_task()).await;
    let (a, b) = (t.enroll("a").await, t.enroll("b").await);
    let ask = async |who: &Who| {
        t.post(who, route::CHECK_IN, &json!({ "examples": 10, "wait_ms": 0 })).await.read::<CheckInReply>()
    };
    t.work().await;
    ask(&a.1).await;
    t.post(&t.operator, "/v1/tasks/small/pause", &json!({})).await;
    let task = t.get(&t.viewer, "/v1/tasks/small").await.json();
    assert_eq!(task["shortage"], json!({ "needed": 2, "enrolled": 2, "waiting": 1 }));
    assert_eq!((&task["waiting_for"]["kind"], &task["waiting_for"]["more"]), (&json!("participants"), &json!(1)));
    for who in [&a.1, &b.1] {
        assert!(matches!(ask(who).await, CheckInReply::ComeBack { .. }));
    }
    t.work().await;
    for (id, who) in [&a, &b] {
        let CheckInReply::Assigned(work) = ask(who).await else { panic!("the round did not take it") };
        assert_eq!(t.send(who, t.upload(&work, *id, &input([1, 2, 3]))).await.status, 200);
    }
    t.work().await;
    assert_eq!(t.get(&t.viewer, "/v1/tasks/small/rounds/1").await.json()["state"], "COMPLETED");
    // The next one does not open, and participants get no reason to wait for it.
    let CheckInReply::ComeBack { waiting_for, .. } = ask(&a.1).await else { panic!("there is work") };
    assert_eq!(waiting_for, [WaitingFor::AnyTask]);
    t.work().await;
    t.get(&t.viewer, "/v1/tasks/small/rounds/2").await.problem(ProblemType::NotFound);
}

#[tokio::test]
async fn a_secure_round_that_selects_when_its_task_is_paused_invites_whoever_waits_for_any_task() {
    let world = World::new(3).await;
    let ask = async || {
        let body = json!({ "examples": 10, "wait_ms": 0 });
        world.t.post(&world.members[0].who, route::CHECK_IN, &body).await.read::<CheckInReply>()
    };
    world.t.work().await;
    world.t.post(&world.t.operator, "/v1/tasks/secure/pause", &json!({})).await;
    let CheckInReply::Invited(invitation) = ask().await else { panic!("it is not invited") };
    assert_eq!((invitation.round, invitation.attempt), (1, 1));
    world.t.advance(PHASE);
    world.t.work().await;
    assert_eq!(world.state(1).await, RoundState::Failed);
    assert!(matches!(ask().await, CheckInReply::ComeBack { .. }), "no further attempt opens");
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
