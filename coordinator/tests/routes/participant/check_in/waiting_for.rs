//! The reply to a participant without work.

use std::time::Duration;

use serde_json::json;
use wire::inspect::RoundView;
use wire::participant::{CheckInReply, MAX_WAITING_FOR, WaitingFor};
use wire::route;
use wire::{TaskStatus, Timestamp};

use crate::support::{TestCoordinator, Who, small_task};

/// The returned reasons, without and with a name.
async fn told(t: &TestCoordinator, who: &Who, task: Option<&str>) -> Vec<WaitingFor> {
    let body = json!({ "task": task, "examples": 10, "wait_ms": 0 });
    match t.post(who, route::CHECK_IN, &body).await.read() {
        CheckInReply::ComeBack { waiting_for, .. } => waiting_for,
        other => panic!("{other:?}"),
    }
}

fn named(name: &str) -> String {
    name.to_owned()
}

#[tokio::test]
async fn a_name_that_no_task_has_is_told_with_those_there_are() {
    let t = TestCoordinator::start().await;
    let (_, a) = t.enroll("a").await;
    assert_eq!(told(&t, &a, None).await, [WaitingFor::AnyTask]);
    let unknown = |there_are: Vec<String>| [WaitingFor::Task { named: named("smal"), there_are }];
    assert_eq!(told(&t, &a, Some("smal")).await, unknown(vec![]));
    t.create_task(&small_task()).await;
    assert_eq!(told(&t, &a, Some("smal")).await, unknown(vec![named("small")]));
    t.advance(Duration::from_secs(1));
    let mut spec = small_task();
    spec["name"] = json!("for-others");
    spec["selection"]["require"] = json!({ "labels": { "region": "eu" } });
    t.create_task(&spec).await;
    let names = unknown(vec![named("small")]);
    assert_eq!(told(&t, &a, Some("smal")).await, names, "a task for others is not told");
    let mut spec = small_task();
    for number in 0..2 * MAX_WAITING_FOR {
        spec["name"] = json!(format!("other-{number:02}"));
        t.create_task(&spec).await;
    }
    let reasons = told(&t, &a, Some("smal")).await;
    let [WaitingFor::Task { there_are, .. }] = reasons.as_slice() else { panic!("{reasons:?}") };
    assert_eq!((there_are.len(), there_are[0].as_str()), (MAX_WAITING_FOR, "small"));
    let any = told(&t, &a, None).await;
    assert_eq!(any.len(), MAX_WAITING_FOR);
}

/// When the current phase of the first round ends.
async fn deadline(t: &TestCoordinator) -> Option<Timestamp> {
    let round: RoundView = t.get(&t.viewer, "/v1/tasks/small/rounds/1").await.read();
    round.phases.last().unwrap().deadline_at
}

#[tokio::test]
async fn after_a_failed_attempt_it_is_told_when_the_next_one_opens() {
    let t = TestCoordinator::start().await;
    t.create_task(&small_task()).await;
    let (a, b) = (t.enroll("a").await.1, t.enroll("b").await.1);
    let opens = |at| [WaitingFor::Round { task: named("small"), at }];
    for pause in [1, 2] {
        t.assigned(&[a.clone(), b.clone()]).await;
        t.advance(Duration::from_secs(600));
        t.work().await;
        let at = t.now().plus(Duration::from_secs(pause));
        for who in [&a, &b] {
            assert_eq!(told(&t, who, Some("small")).await, opens(Some(at)));
        }
        t.advance(Duration::from_secs(pause));
        assert_eq!(told(&t, &a, Some("small")).await, opens(None));
    }
    // The next attempt waits in vain for the other one.
    t.advance(Duration::from_secs(1200));
    t.work().await;
    let lacking = |until| [WaitingFor::Participants { task: named("small"), more: 1, until }];
    assert_eq!(told(&t, &a, Some("small")).await, lacking(deadline(&t).await));
    t.advance(Duration::from_secs(1200));
    t.work().await;
    assert_eq!(told(&t, &a, Some("small")).await, lacking(None), "no attempt selects them now");
}

#[tokio::test]
async fn what_keeps_a_task_from_going_on_is_told() {
    let t = TestCoordinator::start().await;
    let mut spec = small_task();
    spec["rounds"]["select_min"] = json!(3);
    spec["selection"]["cohort"] = json!({ "count": 3 });
    let task = t.create_task(&spec).await;
    let (_, a) = t.enroll("a").await;
    let (_, b) = t.enroll("b").await;
    let soon = [WaitingFor::Round { task: named("small"), at: None }];
    assert_eq!(told(&t, &a, Some("small")).await, soon, "none is open yet");
    t.advance(Duration::from_secs(2));
    t.work().await;
    let until = deadline(&t).await;
    assert_eq!(until, Some(t.now().plus(Duration::from_secs(600))));
    let lacking = |more| [WaitingFor::Participants { task: named("small"), more, until }];
    assert_eq!(told(&t, &a, Some("small")).await, lacking(2), "it counts itself");
    assert_eq!(told(&t, &b, Some("small")).await, lacking(2), "what was counted is told for a second");
    t.advance(Duration::from_secs(1));
    assert_eq!(told(&t, &a, None).await, lacking(1));
    let findings = json!([{ "task": task, "eligible": false }]);
    let body = json!({ "task": "small", "wait_ms": 0, "findings": findings });
    let reply = t.post(&a, route::CHECK_IN, &body).await.read();
    let CheckInReply::ComeBack { waiting_for, .. } = reply else { panic!("{reply:?}") };
    assert_eq!(waiting_for, [WaitingFor::Device { task: named("small") }]);
    t.post(&t.admin, "/v1/tasks/small/pause", &json!({})).await;
    for name in [Some("small"), None] {
        assert_eq!(told(&t, &a, name).await, lacking(1), "the round goes on");
    }
    t.advance(Duration::from_secs(600));
    t.work().await;
    let paused = WaitingFor::Operator { task: named("small"), status: TaskStatus::Paused };
    assert_eq!(told(&t, &a, Some("small")).await, [paused]);
    assert_eq!(told(&t, &a, None).await, [WaitingFor::AnyTask]);
    spec["name"] = json!("european");
    spec["selection"]["require"] = json!({ "labels": { "region": "eu" } });
    t.create_task(&spec).await;
    let label = WaitingFor::Label { task: named("european"), label: named("region"), value: named("eu") };
    assert_eq!(told(&t, &a, Some("european")).await, [label]);
}
