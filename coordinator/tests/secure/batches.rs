//! Cohorts of fixed batches: drawn, selected and summed as a whole.

use std::collections::BTreeSet;

use federation::round::{AssignmentState, FailureReason, RoundState};
use serde_json::{Value, json};
use wire::participant::{BatchStep, CheckInReply};
use wire::route;

use crate::support::TestCoordinator;
use crate::support::member::Member;
use crate::support::secure::{Drops, World, spec};

const SIZE: usize = 3;

/// Batches of three; cohorts of nine, and of at least six.
fn batches_of_three(spec: &mut Value) {
    spec["secure_aggregation"]["batch_size"] = json!(SIZE);
    spec["secure_aggregation"]["max_corrupt_fraction"] = json!(0);
    spec["secure_aggregation"]["max_dropout_fraction"] = json!(0.4);
    spec["rounds"]["select_min"] = json!(6);
    spec["selection"]["cohort"]["count"] = json!(9);
}

/// A world whose members are in batches.
async fn world(participants: usize) -> World {
    let mut world = World::with(participants, batches_of_three).await;
    world.draw_batches().await;
    world
}

/// Positions of a member's batch.
fn batch(world: &World, at: usize) -> BTreeSet<usize> {
    let id = world.members[at].batch_id();
    (0..world.members.len()).filter(|other| world.members[*other].batch_id() == id).collect()
}

#[tokio::test]
async fn every_member_is_drawn_into_one_batch() {
    let world = world(9).await;
    for at in 0..9 {
        assert_eq!(batch(&world, at).len(), SIZE, "member {at}");
    }
}

#[tokio::test]
async fn sum_leaves_out_the_batch_of_a_dropout() {
    let mut world = world(9).await;
    let torn = batch(&world, 4);
    for (number, silent) in [(1, Drops::Input), (2, Drops::Shares)] {
        // The rest of its batch sends inputs, and is excluded when collection closes.
        let mut drops: Vec<_> =
            (0..9).map(|at| if torn.contains(&at) { Drops::Signature } else { Drops::Never }).collect();
        drops[4] = silent;
        let view = world.run(number, &drops).await;
        assert_eq!((view.state, view.cohort, view.reported), (RoundState::Completed, 9, 6), "{view:?}");
        let plain = world.plain(number, |at| !torn.contains(&at));
        assert_eq!(world.released(number).await, Some(plain));
        for (id, place) in world.assignments(number).await {
            let at = world.members.iter().position(|member| member.id == id).unwrap();
            let expected = if torn.contains(&at) { AssignmentState::Late } else { AssignmentState::Reported };
            assert_eq!(place.state, expected, "member {at}");
        }
    }
}

#[tokio::test]
async fn cohort_consists_of_whole_batches_that_are_present() {
    let mut world = world(9).await;
    let absent = batch(&world, 0);
    // One member of the batch is absent, so the others are not drawn.
    world.join(|at| at != 0).await;
    let drawn: BTreeSet<_> = world.assignments(1).await.into_keys().collect();
    let expected = (0..9).filter(|at| !absent.contains(at)).map(|at| world.members[at].id).collect();
    assert_eq!(drawn, expected);
    assert_eq!(world.state(1).await, RoundState::Sharing);
}

#[tokio::test]
async fn round_fails_when_too_few_whole_batches_are_left() {
    let mut world = world(9).await;
    let (one, other) = (batch(&world, 0), batch(&world, 8));
    let mut drops = vec![Drops::Never; 9];
    drops[0] = Drops::Input;
    let second = if one == other { (0..9).find(|at| !one.contains(at)).unwrap() } else { 8 };
    drops[second] = Drops::Input;
    world.run(1, &drops).await;
    // Three inputs of one batch are below the threshold of five.
    world.assert_failed(1, FailureReason::TooFewInputs).await;
}

#[tokio::test]
async fn draw_without_all_nonces_ends_and_another_begins() {
    let mut world = World::with(9, batches_of_three).await;
    world.t.work().await;
    let mut first = None;
    for at in 0..9 {
        let member = &mut world.members[at];
        let CheckInReply::Batch(step) = member.check_in(&world.t).await else { panic!("no draw") };
        let BatchStep::Offer { draw, size: 3, .. } = *step else { panic!("{step:?}") };
        assert_eq!(*first.get_or_insert(draw), draw);
        member.offer(draw, 3);
        let reply = member.check_in(&world.t).await;
        let is_last = at == 8;
        assert_eq!(matches!(reply, CheckInReply::Batch(_)), is_last, "{reply:?}");
    }
    // The last one never reveals.
    for member in &mut world.members[..8] {
        let CheckInReply::Batch(step) = member.check_in(&world.t).await else { panic!("no pool") };
        member.reveal_nonce(&world.t, &step);
        assert!(matches!(member.check_in(&world.t).await, CheckInReply::ComeBack { .. }));
    }
    world.t.advance(std::time::Duration::from_secs(61));
    let CheckInReply::Batch(step) = world.members[0].check_in(&world.t).await else { panic!("no draw") };
    assert!(matches!(*step, BatchStep::Offer { draw, .. } if Some(draw) != first), "{step:?}");
    // The next draw begins with enough for two batches, without the participant that failed the first one.
    assert!(matches!(world.members[8].check_in(&world.t).await, CheckInReply::ComeBack { .. }));
    for _ in 0..6 {
        for member in &mut world.members[..6] {
            member.draw_batch(&world.t).await;
        }
    }
    for at in 0..6 {
        assert_eq!(batch(&world, at).len(), SIZE, "member {at}");
    }
    // The round fails in the meantime; its next attempt opens after the delay.
    for seconds in [3000, 600] {
        world.t.advance(std::time::Duration::from_secs(seconds));
        world.t.work().await;
    }
    let CheckInReply::Batch(step) = world.members[8].check_in(&world.t).await else { panic!("left out for ever") };
    assert!(matches!(*step, BatchStep::Offer { .. }), "{step:?}");
}

#[tokio::test]
async fn newcomers_form_batches_of_their_own() {
    let mut world = World::with(15, batches_of_three).await;
    let late = world.members.split_off(9);
    world.draw_batches().await;
    let earlier: Vec<_> = world.members.iter().map(Member::batch_id).collect();
    world.members.extend(late);
    // Six offers are fewer than a cohort of nine, so the draw begins after a minute.
    for _ in 0..8 {
        for member in &mut world.members[9..] {
            if member.batch_id().is_none() {
                member.draw_batch(&world.t).await;
            }
        }
        world.t.advance(std::time::Duration::from_secs(21));
    }
    for at in 0..15 {
        let members = batch(&world, at);
        assert_eq!(members.len(), SIZE, "member {at}");
        assert!(members.iter().all(|other| (*other < 9) == (at < 9)), "member {at}: {members:?}");
    }
    let after: Vec<_> = world.members.iter().take(9).map(Member::batch_id).collect();
    assert_eq!(after, earlier);
}

#[tokio::test]
async fn offer_is_replaced_until_the_pool_is_fixed() {
    let mut world = World::with(9, batches_of_three).await;
    world.t.work().await;
    let CheckInReply::Batch(step) = world.members[0].check_in(&world.t).await else { panic!("no draw") };
    let BatchStep::Offer { draw, .. } = *step else { panic!("{step:?}") };
    // The second offer comes from a participant that lost its journal.
    for _ in 0..2 {
        world.members[0].offer(draw, 3);
        assert!(matches!(world.members[0].check_in(&world.t).await, CheckInReply::ComeBack { .. }));
    }
    world.draw_batches().await;
    assert_eq!(batch(&world, 0).len(), SIZE);
}

/// Checks in for any task, or for the named one.
async fn ask(t: &TestCoordinator, member: &Member, task: Option<&str>) -> CheckInReply {
    let body = json!({ "task": task, "examples": 10, "wait_ms": 0, "batch": member.batch_report() });
    t.post(&member.who, route::CHECK_IN, &body).await.read()
}

#[tokio::test]
async fn each_task_draws_batches_of_its_own_participants() {
    let mut world = World::with(9, batches_of_three).await;
    let World { t, members, task, .. } = &mut world;
    let mut other = spec(9);
    batches_of_three(&mut other);
    other["name"] = json!("other");
    let other = t.create_task(&other).await;
    t.work().await;
    let mut draws = Vec::new();
    for (member, (name, id)) in members.iter_mut().zip([("secure", *task), ("other", other)]) {
        let CheckInReply::Batch(step) = ask(t, member, Some(name)).await else { panic!("no draw for {name}") };
        let BatchStep::Offer { task, draw, .. } = *step else { panic!("{step:?}") };
        assert_eq!(task, id);
        member.offer(draw, 3);
        draws.push(draw);
    }
    assert_ne!(draws[0], draws[1]);
    let [first, second, third, ..] = members.as_mut_slice() else { panic!("nine") };
    // A participant open to both tasks stays in its draw; one that leaves the task leaves the draw.
    for member in [&*first, &*second] {
        let reply = ask(t, member, None).await;
        assert!(matches!(reply, CheckInReply::ComeBack { .. }), "{reply:?}");
    }
    let CheckInReply::Batch(step) = ask(t, first, Some("other")).await else { panic!("no draw") };
    assert!(matches!(*step, BatchStep::Offer { draw, .. } if draw == draws[1]), "{step:?}");
    // An offer for one task's draw is invalid in the other's.
    third.offer(draws[0], 3);
    let reply = ask(t, third, Some("secure")).await;
    assert!(matches!(reply, CheckInReply::ComeBack { .. }), "{reply:?}");
    for (draw, expected) in draws.into_iter().zip([2, 1]) {
        let count = t.inner.store.read("test", |tx| Box::pin(async move { tx.batch_offer_count(draw).await }));
        assert_eq!(count.await.unwrap(), expected);
    }
}

#[tokio::test]
async fn offers_and_nonces_of_others_are_refused() {
    let mut world = World::with(9, batches_of_three).await;
    world.t.work().await;
    let CheckInReply::Batch(step) = world.members[0].check_in(&world.t).await else { panic!("no draw") };
    let BatchStep::Offer { draw, .. } = *step else { panic!("{step:?}") };
    world.members[0].offer(draw, 3);
    let stolen = world.members[0].batch_report();
    let reply = world.members[1].check_in_as(&world.t, &stolen).await;
    assert_eq!(reply.status, 422, "{reply:?}");
    let garbage = json!({ "state": "offer", "draw": draw, "offer": "AAAA" });
    let reply = world.members[1].check_in_as(&world.t, &garbage).await;
    assert_eq!(reply.status, 422, "{reply:?}");
}
