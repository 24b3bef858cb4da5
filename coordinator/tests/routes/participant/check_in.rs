//! Long-polling for work.

use std::time::Duration;

use serde_json::json;
use wire::participant::CheckInReply;
use wire::problem::ProblemType;
use wire::route;

use crate::support::{TestCoordinator, Who, small_task};

#[tokio::test]
async fn work_is_given_once_a_cohort_is_drawn_and_given_again_until_it_is_done() {
    let t = TestCoordinator::start().await;
    let task = t.create_task(&small_task()).await;
    let (_, a) = t.enroll("a").await;
    let (_, b) = t.enroll("b").await;
    t.work().await;
    assert!(matches!(t.check_in(&a, "small").await, CheckInReply::ComeBack { after_ms: 1..=50 }));
    t.work().await;
    assert!(matches!(t.check_in(&a, "small").await, CheckInReply::ComeBack { .. }), "one is not enough");
    t.check_in(&b, "small").await;
    t.work().await;
    let CheckInReply::Assigned(first) = t.check_in(&a, "small").await else { panic!("no work") };
    assert_eq!((first.task, first.round, first.attempt, first.cohort), (task, 1, 1, 2));
    assert_eq!((first.base.version, first.task_name.as_str(), first.encoding.max_cohort), (0, "small", 8));
    assert_eq!(first.remaining_ms, 600_000);
    let CheckInReply::Assigned(again) = t.check_in(&a, "small").await else { panic!("no work") };
    assert_eq!(again, first);
    // That the participant knows of it is written beside the next thing it says.
    tokio::time::sleep(Duration::from_millis(60)).await;
    let cohort = t.get(&t.viewer, "/v1/tasks/small/rounds/1/assignments").await.json();
    let states: Vec<_> = cohort["items"].as_array().unwrap().iter().map(|item| item["state"].clone()).collect();
    assert!(states.contains(&json!("WORKING")) && states.contains(&json!("ASSIGNED")), "{states:?}");
}

#[tokio::test]
async fn an_open_poll_is_answered_the_moment_there_is_work() {
    let t = TestCoordinator::start().await;
    t.create_task(&small_task()).await;
    let mut polls = Vec::new();
    for name in ["a", "b"] {
        let (_, who) = t.enroll(name).await;
        polls.push(who);
    }
    let poll = async |who: &Who| {
        let body = json!({ "task": "small", "examples": 10, "wait_ms": 60_000 });
        t.post(who, route::CHECK_IN, &body).await.read::<CheckInReply>()
    };
    let work = async {
        // Until both are checked in there is nothing to draw.
        loop {
            t.work().await;
            if t.get(&t.viewer, "/v1/tasks/small/rounds/1").await.json()["state"] == "COLLECTING" {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let (a, b, ()) = tokio::join!(poll(&polls[0]), poll(&polls[1]), work);
    assert!(matches!((a, b), (CheckInReply::Assigned(_), CheckInReply::Assigned(_))));
}

#[tokio::test]
async fn who_hangs_up_is_not_drawn() {
    let t = TestCoordinator::start().await;
    let mut spec = small_task();
    spec["selection"]["cohort"] = json!({ "count": 1 });
    t.create_task(&spec).await;
    let (_, a) = t.enroll("a").await;
    let body = json!({ "task": "small", "examples": 10, "wait_ms": 60_000 });
    let hung_up = tokio::time::timeout(Duration::from_millis(50), t.post(&a, route::CHECK_IN, &body)).await;
    assert!(hung_up.is_err());
    // It is written beside the next thing that anybody says.
    tokio::time::sleep(Duration::from_millis(60)).await;
    t.work().await;
    assert_eq!(t.get(&t.viewer, "/v1/tasks/small/rounds/1").await.json()["state"], "SELECTING");
    t.check_in(&a, "small").await;
    t.work().await;
    assert!(matches!(t.check_in(&a, "small").await, CheckInReply::Assigned(_)));
}

#[tokio::test]
async fn a_poll_ends_when_its_time_is_over() {
    let t = TestCoordinator::start().await;
    t.create_task(&small_task()).await;
    let (_, a) = t.enroll("a").await;
    let body = json!({ "task": "small", "examples": 10, "wait_ms": 30 });
    let reply: CheckInReply = t.post(&a, route::CHECK_IN, &body).await.read();
    assert!(matches!(reply, CheckInReply::ComeBack { .. }));
}

#[tokio::test]
async fn a_poll_ends_when_the_coordinator_shuts_down() {
    let t = TestCoordinator::start().await;
    t.create_task(&small_task()).await;
    let (_, a) = t.enroll("a").await;
    let body = json!({ "task": "small", "examples": 10, "wait_ms": 60_000 });
    let poll = t.post(&a, route::CHECK_IN, &body);
    let stop = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        t.inner.stop().await;
    };
    let (reply, ()) = tokio::join!(poll, stop);
    assert!(matches!(reply.read(), CheckInReply::ComeBack { .. }));
}

#[tokio::test]
async fn whoever_waits_hears_that_the_task_is_over() {
    let t = TestCoordinator::start().await;
    let task = t.create_task(&small_task()).await;
    let (_, a) = t.enroll("a").await;
    let body = json!({ "task": "small", "examples": 10, "wait_ms": 60_000 });
    let poll = t.post(&a, route::CHECK_IN, &body);
    let cancel = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(t.post(&t.operator, "/v1/tasks/small/cancel", &json!({})).await.status, 200);
    };
    let (reply, ()) = tokio::join!(poll, cancel);
    assert_eq!(reply.read::<CheckInReply>(), CheckInReply::TaskOver { task });
}

#[tokio::test]
async fn a_task_that_nobody_created_yet_is_waited_for() {
    let t = TestCoordinator::start().await;
    let (_, a) = t.enroll("a").await;
    assert!(matches!(t.check_in(&a, "later").await, CheckInReply::ComeBack { .. }));
    let body = json!({ "task": "no name!", "examples": 10, "wait_ms": 0 });
    t.post(&a, route::CHECK_IN, &body).await.problem(ProblemType::InvalidValue);
}

#[tokio::test]
async fn without_a_name_any_task_that_takes_the_participant_will_do() {
    let t = TestCoordinator::start().await;
    let mut picky = small_task();
    picky["name"] = json!("picky");
    picky["selection"]["require"] = json!({ "labels": { "region": "eu" } });
    picky["selection"]["cohort"] = json!({ "count": 1 });
    t.create_task(&picky).await;
    let mut open = picky.clone();
    open["name"] = json!("open");
    open["selection"]["require"] = json!({});
    t.create_task(&open).await;
    let (_, a) = t.enroll("a").await;
    t.work().await;
    let body = json!({ "examples": 10 });
    t.post(&a, route::CHECK_IN, &body).await;
    t.work().await;
    let CheckInReply::Assigned(work) = t.post(&a, route::CHECK_IN, &body).await.read() else { panic!("no work") };
    assert_eq!(work.task_name, "open");
}

#[tokio::test]
async fn a_participant_takes_part_in_round_after_round() {
    let t = TestCoordinator::start().await;
    t.create_task(&small_task()).await;
    let (id_a, a) = t.enroll("a").await;
    let (id_b, b) = t.enroll("b").await;
    for round in 1..=2 {
        let work = t.assigned(&[a.clone(), b.clone()]).await;
        assert_eq!(work[0].round, round);
        for (who, id, assignment) in [(&a, id_a, &work[0]), (&b, id_b, &work[1])] {
            let upload = t.upload(assignment, id, &crate::support::input([1, -2, 3]));
            assert_eq!(t.send(who, upload).await.status, 200);
        }
        t.work().await;
    }
    let task = t.get(&t.viewer, "/v1/tasks/small").await.json();
    assert_eq!((&task["status"], &task["model_version"]), (&json!("COMPLETED"), &json!(2)));
    assert!(matches!(t.check_in(&a, "small").await, CheckInReply::TaskOver { .. }));
}

#[tokio::test]
async fn a_coordinator_that_restarts_does_not_call_everybody_back_at_once() {
    let t = TestCoordinator::start().await;
    t.create_task(&small_task()).await;
    let mut all = Vec::new();
    for n in 0..120 {
        let (_, who) = t.enroll(&format!("p{n}")).await;
        t.check_in(&who, "small").await;
        all.push(who);
    }
    t.inner.stop().await;
    let mut told = std::collections::BTreeSet::new();
    for who in &all[..20] {
        let CheckInReply::ComeBack { after_ms } = t.check_in(who, "small").await else { panic!("not sent away") };
        assert!(after_ms >= 2000, "{after_ms}");
        told.insert(after_ms);
    }
    assert!(told.len() > 5, "{told:?}");
}
