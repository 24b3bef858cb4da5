//! Long-polling for work.

mod ahead;
mod ask;
mod assignment;
mod invitations;
mod over;
mod waiting_for;

use std::time::Duration;

use coordinator::http::VirtualTime;
use futures_util::FutureExt as _;
use http::Request;
use serde_json::json;
use store::WakeEvent;
use wire::participant::CheckInReply;
use wire::problem::ProblemType;
use wire::route;

use crate::support::{TestCoordinator, Who, named, small_task};

#[tokio::test]
async fn work_is_given_once_a_cohort_is_drawn_and_given_again_until_it_is_done() {
    let t = TestCoordinator::start().await;
    let task = t.create_task(&small_task()).await;
    let (_, a) = t.enroll("a").await;
    let (_, b) = t.enroll("b").await;
    t.work().await;
    assert!(matches!(t.check_in(&a, "small").await, CheckInReply::ComeBack { after_ms: 1..=50, .. }));
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
    // The participant's acknowledgement is written with its next message.
    tokio::time::sleep(Duration::from_millis(60)).await;
    let cohort = t.get(&t.viewer, "/v1/tasks/small/rounds/1/assignments").await.json();
    let states: Vec<_> = cohort["items"].as_array().unwrap().iter().map(|item| item["state"].clone()).collect();
    assert!(states.contains(&json!("WORKING")) && states.contains(&json!("ASSIGNED")), "{states:?}");
}

/// Another coordinator draws a participant, and dies before it responds.
#[tokio::test]
async fn a_check_in_that_is_gone_is_written_again_at_the_next_poll() {
    let t = TestCoordinator::start().await;
    t.create_task(&small_task()).await;
    let (a, b) = (t.enroll("a").await, t.enroll("b").await);
    t.check_in(&a.1, "small").await;
    let gone = &[a.0];
    let removed = t.inner.store.transact("test", |tx| Box::pin(async move { tx.remove_check_ins(gone).await }));
    removed.await.unwrap();
    t.check_in(&a.1, "small").await;
    t.check_in(&b.1, "small").await;
    t.work().await;
    assert!(matches!(t.check_in(&a.1, "small").await, CheckInReply::Assigned(_)));
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
        // The draw waits until both are checked in.
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
    // It is written with the next message of any participant.
    tokio::time::sleep(Duration::from_millis(60)).await;
    t.work().await;
    assert_eq!(t.get(&t.viewer, "/v1/tasks/small/rounds/1").await.json()["state"], "SELECTING");
    t.check_in(&a, "small").await;
    t.work().await;
    assert!(matches!(t.check_in(&a, "small").await, CheckInReply::Assigned(_)));
}

#[tokio::test]
async fn whoever_is_still_there_is_written_and_starts_no_look_at_who_is_there() {
    let t = TestCoordinator::start().await;
    let task = t.create_task(&small_task()).await;
    let (_, a) = t.enroll("a").await;
    let mut events = t.inner.store.wake().subscribe();
    t.check_in(&a, "small").await;
    assert_eq!(events.next().await, Some(WakeEvent::Work));
    t.advance(Duration::from_secs(6));
    t.check_in(&a, "small").await;
    // It would have been valid for 10 s, and is for 10 s more.
    let later = t.now().plus(Duration::from_secs(9));
    let written = || t.inner.store.read("test", |tx| Box::pin(async move { tx.candidate_count(task, later).await }));
    for _ in 0..200 {
        let count: Result<u32, store::StoreError> = written().await;
        if count.unwrap() == 1 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let count: Result<u32, store::StoreError> = written().await;
    assert_eq!(count.unwrap(), 1);
    assert_eq!(events.next().now_or_never(), None);
    // New check-ins are processed.
    t.post(&a, route::CHECK_IN, &json!({ "task": "small", "examples": 11 })).await;
    assert_eq!(events.next().await, Some(WakeEvent::Work));
}

#[tokio::test(start_paused = true)]
async fn renewals_share_a_transaction_and_go_with_whatever_is_written_before() {
    let t = TestCoordinator::start().await;
    let task = t.create_task(&small_task()).await;
    let mut people = Vec::new();
    for name in ["a", "b", "c"] {
        people.push(t.enroll(name).await.1);
    }
    let renewed = async || {
        let later = t.now().plus(Duration::from_secs(9));
        let counted: Result<_, store::StoreError> =
            t.inner.store.read("test", |tx| Box::pin(async move { tx.candidate_count(task, later).await })).await;
        counted.unwrap()
    };
    for who in &people {
        t.check_in(who, "small").await;
    }
    // A written check-in is valid for 10 s, and is renewed after 5.
    t.advance(Duration::from_secs(6));
    for who in &people[..2] {
        t.check_in(who, "small").await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(renewed().await, 0, "others may join it");
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(renewed().await, 2, "both at once");
    t.check_in(&people[2], "small").await;
    assert_eq!(renewed().await, 2);
    // The next durable commit includes it.
    let news = json!({ "task": "small", "examples": 11 });
    t.post(&people[0], route::CHECK_IN, &news).await;
    assert_eq!(renewed().await, 3);
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
async fn whoever_keeps_time_is_answered_at_once_and_counts_as_if_it_waited() {
    let t = TestCoordinator::start().await;
    let mut spec = small_task();
    spec["selection"]["cohort"] = json!({ "count": 1 });
    t.create_task(&spec).await;
    let (_, a) = t.enroll("a").await;
    let body = json!({ "task": "small", "examples": 10, "wait_ms": 3_600_000 }).to_string();
    let mut request =
        Request::post(route::CHECK_IN).header("content-type", "application/json").body(body.into()).unwrap();
    request.extensions_mut().insert(VirtualTime);
    assert!(matches!(t.send(&a, request).await.read(), CheckInReply::ComeBack { after_ms: 1..=50, .. }));
    t.advance(Duration::from_secs(3600));
    t.work().await;
    assert!(matches!(t.check_in(&a, "small").await, CheckInReply::Assigned(_)));
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
    let CheckInReply::TaskOver { task: over, .. } = reply.read() else { panic!("it is not over") };
    assert_eq!(over, task);
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
    let mut picky = named("picky");
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
        let CheckInReply::ComeBack { after_ms, .. } = t.check_in(who, "small").await else { panic!("not sent away") };
        assert!(after_ms >= 2000, "{after_ms}");
        told.insert(after_ms);
    }
    assert!(told.len() > 5, "{told:?}");
}

#[tokio::test]
async fn whoever_has_seen_later_rounds_is_believed_as_far_as_others_say_so_too() {
    let t = TestCoordinator::start().await;
    let mut spec = small_task();
    spec["secure_aggregation"] = json!({ "enabled": true });
    spec["selection"]["cohort"]["count"] = json!(3);
    let task = t.create_task(&spec).await;
    t.work().await;
    let ask = |who: Who, declined: serde_json::Value| {
        let mut body = json!({ "task": "small", "examples": 1 });
        if !declined.is_null() {
            body["declined"] = declined;
        }
        let t = &t;
        async move { t.post(&who, route::CHECK_IN, &body).await.json() }
    };
    let path = format!("/v1/tasks/{task}/rebase");
    let view = t.get(&t.viewer, "/v1/tasks/small").await.json();
    assert_eq!(view["behind"], serde_json::Value::Null);
    t.post(&t.operator, &path, &json!({})).await.problem(ProblemType::Conflict);

    let mut all = Vec::new();
    for (name, sent) in [("a", 6), ("b", 7), ("c", 7), ("liar", 90_000)] {
        let (_, who) = t.enroll(name).await;
        assert_eq!(ask(who.clone(), json!(null)).await["round"], 1, "invited");
        let reply = ask(who.clone(), json!({ "task": task, "sent": sent })).await;
        assert_eq!(reply["kind"], "come_back", "not asked again for what it will not give");
        all.push(who);
    }
    let view = t.get(&t.viewer, "/v1/tasks/small").await.json();
    assert_eq!(view["behind"], json!({ "participants": 4, "next_round": 1, "seen_round": 7 }));
    let ready = t.get(&Who::Nobody, route::READYZ).await;
    let told = String::from_utf8(ready.body).unwrap();
    assert!(ready.status == 200 && told.starts_with("degraded\n") && told.contains("task rebase"), "{told}");

    t.post(&t.viewer, &path, &json!({})).await.problem(ProblemType::Forbidden);
    for beyond in [0, 2_000_000] {
        t.post(&t.operator, &path, &json!({ "beyond": beyond })).await.problem(ProblemType::InvalidValue);
    }
    let view = t.post(&t.operator, &path, &json!({})).await.json();
    let detail = view["history"].as_array().unwrap().last().unwrap()["detail"].as_str().unwrap();
    assert!(detail.contains("no round up to 7 is used again"), "{detail}");
    assert_eq!(view["rounds_forfeited"], 7);
    assert_eq!(t.get(&t.viewer, "/v1/tasks/small/rounds/1").await.json()["state"], "CANCELLED");
    t.work().await;
    for (who, sent) in all.iter().zip([6, 7, 7]) {
        assert_eq!(ask(who.clone(), json!({ "task": task, "sent": sent })).await["round"], 8);
    }
    // False reports are shown, and block no one.
    let view = t.get(&t.viewer, "/v1/tasks/small").await.json();
    assert_eq!(view["behind"]["participants"], 1, "{view}");
}
