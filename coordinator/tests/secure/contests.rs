//! Several tasks in need of the same participants' keys at the same time.

use std::time::Duration;

use federation::id::TaskId;
use federation::round::RoundState;
use serde_json::{Value, json};
use wire::inspect::RoundView;
use wire::participant::{CheckInReply, Invitation};
use wire::problem::ProblemType;
use wire::route;

use crate::support::TestCoordinator;
use crate::support::member::{Member, keys_json};
use crate::support::secure::{World, spec};

/// Longer than the reuse of a count of participants.
const A_WHILE: Duration = Duration::from_secs(2);

/// Opens the first task's round, and later that of `other`.
async fn opened(t: &TestCoordinator, participants: usize) -> TaskId {
    t.work().await;
    t.advance(A_WHILE);
    let other = other(t, participants).await;
    t.work().await;
    other
}

/// The task `other`, with cohorts of this size.
async fn other(t: &TestCoordinator, participants: usize) -> TaskId {
    let mut other = spec(participants);
    other["name"] = json!("other");
    t.create_task(&other).await
}

/// Checks in for any task, or for the named one, with the member's current keys.
async fn ask(t: &TestCoordinator, member: &Member, task: Option<&str>, wait_ms: u64, refusals: &Value) -> CheckInReply {
    let held = member.invitation.as_ref().zip(member.client.as_ref());
    let keys = held.map(|(invitation, client)| keys_json(invitation, &client.resend()));
    let mut body = json!({ "task": task, "examples": 10, "wait_ms": wait_ms, "keys": keys, "refusals": refusals });
    body["batch"] = member.batch_report();
    t.post(&member.who, route::CHECK_IN, &body).await.read()
}

/// Makes keys for a round, replacing those for another.
fn accept(member: &mut Member, invitation: &Invitation) {
    member.client = None;
    member.keys(invitation);
}

/// Follows the coordinator's answers while they require a step. Returns the task of the member's keys.
async fn settle(t: &TestCoordinator, member: &mut Member, task: Option<&str>, refusals: &Value) -> TaskId {
    for _ in 0..5 {
        match ask(t, member, task, 0, refusals).await {
            CheckInReply::Invited(invitation) => accept(member, &invitation),
            CheckInReply::ComeBack { .. } => return member.invitation.as_ref().unwrap().task,
            other => panic!("{other:?}"),
        }
    }
    panic!("it is invited again and again");
}

async fn state(t: &TestCoordinator, task: &str) -> RoundState {
    let view: RoundView = t.get(&t.viewer, &format!("/v1/tasks/{task}/rounds/1")).await.read();
    view.state
}

#[tokio::test]
async fn two_rounds_that_want_everybody_do_not_each_hold_some() {
    let mut world = World::new(4).await;
    let World { t, members, task, .. } = &mut world;
    other(t, 4).await;
    t.work().await;
    for (at, member) in members.iter_mut().enumerate() {
        settle(t, member, Some(if at < 2 { "secure" } else { "other" }), &json!([])).await;
    }
    t.work().await;
    assert_eq!([state(t, "secure").await, state(t, "other").await], [RoundState::Selecting; 2]);
    // Open to any task, they are now all known to both.
    for _ in 0..2 {
        t.advance(A_WHILE);
        for member in members.iter_mut() {
            settle(t, member, None, &json!([])).await;
        }
    }
    let held: Vec<_> = members.iter().map(|member| member.invitation.as_ref().unwrap().task).collect();
    assert!(held.iter().all(|one| *one == held[0]), "{held:?}");
    t.work().await;
    let states = [state(t, "secure").await, state(t, "other").await];
    assert!(states.contains(&RoundState::Sharing) && states.contains(&RoundState::Selecting), "{states:?}");
    let drawn = if held[0] == *task { states[0] } else { states[1] };
    assert_eq!(drawn, RoundState::Sharing);
}

#[tokio::test]
async fn the_round_that_opened_first_is_filled_first() {
    let mut world = World::new(3).await;
    let World { t, members, task, .. } = &mut world;
    // The older task opens its round later.
    t.post(&t.operator, "/v1/tasks/secure/pause", &json!({})).await;
    let younger = other(t, 3).await;
    t.work().await;
    assert_eq!(settle(t, &mut members[0], None, &json!([])).await, younger);
    t.advance(A_WHILE);
    t.post(&t.operator, "/v1/tasks/secure/resume", &json!({})).await;
    t.work().await;
    for member in members.iter_mut() {
        assert_eq!(settle(t, member, None, &json!([])).await, younger, "and not {task}");
    }
    t.work().await;
    assert_eq!([state(t, "other").await, state(t, "secure").await], [RoundState::Sharing, RoundState::Selecting]);
}

#[tokio::test]
async fn a_round_that_cannot_be_filled_holds_nobody() {
    let mut world = World::with(4, |spec| spec["selection"]["cohort"] = json!({ "count": 5 })).await;
    let World { t, members, .. } = &mut world;
    other(t, 3).await;
    t.work().await;
    for _ in 0..2 {
        for member in members.iter_mut() {
            settle(t, member, None, &json!([])).await;
        }
        t.advance(A_WHILE);
    }
    t.work().await;
    assert_eq!([state(t, "secure").await, state(t, "other").await], [RoundState::Selecting, RoundState::Sharing]);
}

#[tokio::test]
async fn round_without_whole_batches_holds_nobody() {
    let batches_of_three = |spec: &mut Value| {
        spec["secure_aggregation"]["batch_size"] = json!(3);
        spec["secure_aggregation"]["max_corrupt_fraction"] = json!(0);
        spec["rounds"]["select_min"] = json!(6);
        spec["selection"]["cohort"]["count"] = json!(9);
    };
    let mut world = World::with(9, batches_of_three).await;
    world.draw_batches().await;
    // Two batches lack a member each: seven participants are present, and three of them can be drawn.
    let batch_of: Vec<_> = world.members.iter().map(Member::batch_id).collect();
    let second = batch_of.iter().position(|batch| *batch != batch_of[0]).unwrap();
    world.members.remove(second);
    world.members.remove(0);
    let World { t, members, .. } = &mut world;
    opened(t, 3).await;
    for _ in 0..3 {
        for member in members.iter_mut() {
            settle(t, member, None, &json!([])).await;
        }
        t.advance(A_WHILE);
    }
    t.work().await;
    assert_eq!([state(t, "secure").await, state(t, "other").await], [RoundState::Selecting, RoundState::Sharing]);
}

#[tokio::test]
async fn whoever_waits_is_moved_when_another_round_can_be_filled() {
    let mut world = World::new(3).await;
    let World { t, members, task, .. } = &mut world;
    opened(t, 3).await;
    for (at, member) in members.iter_mut().enumerate() {
        settle(t, member, (at == 0).then_some("other"), &json!([])).await;
    }
    let [first, ..] = members.as_slice() else { panic!("three") };
    let none = json!([]);
    let waiting = ask(t, first, None, 60_000, &none);
    let later = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        t.advance(A_WHILE);
    };
    let (reply, ()) = tokio::join!(tokio::time::timeout(Duration::from_secs(20), waiting), later);
    let CheckInReply::Invited(invitation) = reply.expect("it does not wait on") else { panic!("it is invited") };
    assert_eq!(invitation.task, *task);
    let keyed = t.inner.store.read("test", |tx| {
        let now = t.now();
        let keys = first.invitation.as_ref().unwrap().attempt_key();
        Box::pin(async move { tx.keyed_candidate_count(keys, now).await })
    });
    assert_eq!(keyed.await.unwrap(), 0, "the keys that it gave up draw it nowhere");
}

#[tokio::test]
async fn whoever_refuses_a_task_is_offered_the_others_at_once_and_counted() {
    let mut world = World::new(3).await;
    let World { t, members, task, .. } = &mut world;
    let younger = opened(t, 3).await;
    let refusal = |reason: &str| json!([{ "task": task, "reason": reason }]);
    let member = &mut members[0];
    let CheckInReply::Invited(invitation) = ask(t, member, None, 0, &json!([])).await else { panic!("it is invited") };
    assert_eq!(invitation.task, *task);
    assert_eq!(settle(t, member, None, &refusal("policy")).await, younger);
    settle(t, &mut members[1], None, &refusal("privacy")).await;
    settle(t, &mut members[2], None, &json!([])).await;
    let participants =
        async |task: &str| t.get(&t.viewer, &format!("/v1/tasks/{task}")).await.json()["participants"].clone();
    let refusing = json!([{ "reason": "policy", "participants": 1 }, { "reason": "privacy", "participants": 1 }]);
    assert_eq!(participants("secure").await, json!({ "eligible": 3, "waiting": 1, "refusing": refusing }));
    assert_eq!(participants("other").await, json!({ "eligible": 3, "waiting": 3, "refusing": [] }));
    // The complete task draws all of them.
    t.advance(A_WHILE);
    assert_eq!(settle(t, &mut members[2], None, &json!([])).await, younger);
    t.work().await;
    assert_eq!([state(t, "secure").await, state(t, "other").await], [RoundState::Selecting, RoundState::Sharing]);
    // Reasons must be known to the protocol, and limited in number.
    let body = |refusals: Value| json!({ "refusals": refusals });
    t.post(&members[0].who, route::CHECK_IN, &body(refusal("mood"))).await.problem(ProblemType::MalformedRequest);
    let many = vec![json!({ "task": task, "reason": "policy" }); 33];
    t.post(&members[0].who, route::CHECK_IN, &body(json!(many))).await.problem(ProblemType::InvalidValue);
}
