//! Potentially endless rounds: a liar among the minimum number of participants, an unreadable session.

use std::time::Duration;

use federation::id::RoundKey;
use federation::round::{FailureReason, RoundState};
use federation::time::Clock as _;
use secure_agg::Signer as _;
use secure_agg::codec::Message as _;
use secure_agg::messages::{Advertise, Signed};
use serde_json::json;
use wire::inspect::RoundView;
use wire::participant::CheckInReply;

use crate::support::member::{Member, keys_json};
use crate::support::secure::{PHASE, World};

/// Runs all possible background work, with a timeout.
async fn work(world: &World) {
    let worked = tokio::time::timeout(Duration::from_secs(60), world.t.work()).await;
    worked.expect("background work goes round in circles");
}

/// Checks in with the signing key of `victim`, public from earlier rosters, among its own keys.
async fn join_with_another_s_key(world: &mut World, liar: usize, victim: usize) {
    let identity = world.members[victim].signer.identity().0;
    let member = &mut world.members[liar];
    let invitation = member.invited(&world.t).await;
    let keys = member.keys(&invitation);
    let bytes = wire::base64::decode(keys["advertisement"].as_str().unwrap()).unwrap();
    let mut body = Advertise::decode(&bytes).unwrap().body;
    body.c_pk = identity;
    let advertise = Signed::sign(body, &member.signer).unwrap();
    let reply = member.check_in_with(&world.t, &keys_json(&invitation, &advertise.encode())).await.read();
    assert!(matches!(reply, CheckInReply::ComeBack { .. }), "{reply:?}");
}

/// Three are needed, all but the last have joined, and one of them advertised another's key.
async fn one_of_three_lies() -> World {
    let world = World::with(4, |spec| spec["selection"]["cohort"] = json!({ "count": 3 })).await;
    one_lies(world).await
}

/// The first three join, and one of them lies.
async fn one_lies(mut world: World) -> World {
    work(&world).await;
    // Half of all signing keys have the form of an agreement key.
    let victim = (0..3).find(|at| world.members[*at].signer.identity().0[31] < 0x7f).unwrap();
    let liar = (victim + 1) % 3;
    for at in (0..3).filter(|at| *at != liar) {
        world.members[at].join(&world.t).await;
    }
    join_with_another_s_key(&mut world, liar, victim).await;
    work(&world).await;
    assert_eq!(world.state(1).await, RoundState::Selecting);
    world
}

#[tokio::test]
async fn a_repeated_key_among_the_fewest_that_are_needed_leaves_the_round_its_deadline() {
    let world = one_of_three_lies().await;
    world.t.advance(PHASE);
    work(&world).await;
    let view = world.view(1).await;
    assert_eq!((view.state, view.failure), (RoundState::Failed, Some(FailureReason::TooFewParticipants)));
    assert!(!view.spent);
}

#[tokio::test]
async fn a_repeated_key_among_the_fewest_that_are_needed_is_made_up_for_by_the_next_to_come() {
    let mut world = one_of_three_lies().await;
    world.members[3].join(&world.t).await;
    work(&world).await;
    let view = world.view(1).await;
    assert_eq!((view.state, view.cohort), (RoundState::Sharing, 3));
}

#[tokio::test]
async fn a_repeated_key_does_not_use_up_a_number_for_want_of_inputs() {
    // Three could have a session, but four inputs are required.
    let mut world = World::with(5, |spec| {
        spec["selection"]["cohort"] = json!({ "count": 4 });
        spec["rounds"]["collect_min"] = json!(4);
    })
    .await;
    world = one_lies(world).await;
    world.members[3].join(&world.t).await;
    work(&world).await;
    assert_eq!(world.state(1).await, RoundState::Selecting);
    world.members[4].join(&world.t).await;
    work(&world).await;
    let view = world.view(1).await;
    assert_eq!((view.state, view.cohort), (RoundState::Sharing, 4));
}

#[tokio::test]
async fn whoever_s_certificate_has_ended_before_the_draw_is_not_in_the_roster() {
    let mut world = World::with(1, |spec| spec["selection"]["cohort"] = json!({ "count": 4 })).await;
    let hour = Duration::from_secs(3600);
    world.t.advance(hour);
    for seed in 11..14 {
        world.members.push(Member::enroll(&world.t, seed).await);
    }
    world.t.advance(world.config.identity.certificate_lifetime() - hour - Duration::from_secs(5));
    work(&world).await;
    for member in &mut world.members[..3] {
        member.join(&world.t).await;
    }
    // It was valid on arrival. All others would refuse a roster with it.
    world.t.advance(Duration::from_secs(6));
    world.members[3].join(&world.t).await;
    work(&world).await;
    let view = world.view(1).await;
    assert_eq!((view.state, view.cohort), (RoundState::Sharing, 3));
    let cohort = world.assignments(1).await;
    assert!(!cohort.contains_key(&world.members[0].id));
    for at in 1..4 {
        world.members[at].assigned(&world.t).await;
        world.members[at].share(&world.t).await;
    }
}

#[tokio::test]
async fn a_session_that_cannot_be_read_any_more_ends_its_round() {
    for phase in [RoundState::Sharing, RoundState::Collecting, RoundState::Confirming] {
        let mut world = World::new(4).await;
        world.up_to(1, phase).await;
        world.act(phase, |at| at < 3).await;
        let (key, now) = (RoundKey { task: world.task, number: 1 }, world.t.clock.now());
        let store = &world.t.inner.store;
        let damage =
            store.transact("test", |tx| Box::pin(async move { tx.put_session(key.attempt(1), b"damaged", now).await }));
        damage.await.unwrap();
        world.t.advance(PHASE);
        work(&world).await;
        let view = world.view(1).await;
        assert_eq!((view.state, view.failure), (RoundState::Failed, Some(FailureReason::InputLost)), "{phase}");
        assert_eq!(view.spent, phase > RoundState::Sharing);
    }
}

#[tokio::test]
async fn a_phase_that_runs_or_failed_tells_how_many_have_answered() {
    for phase in [RoundState::Sharing, RoundState::Collecting, RoundState::Confirming, RoundState::Unmasking] {
        let mut world = World::new(5).await;
        world.up_to(1, phase).await;
        world.act(phase, |at| at < 2).await;
        let counts = |view: RoundView| view.phases.last().map(|last| (last.state, last.count));
        assert_eq!(counts(world.view(1).await), Some((phase, Some(2))));
        world.time_out().await;
        assert_eq!(world.state(1).await, RoundState::Failed);
        assert_eq!(counts(world.view(1).await), Some((phase, Some(2))));
    }
}

#[tokio::test]
async fn fewer_dealers_than_must_send_an_input_do_not_use_up_the_number() {
    let mut world = World::with(5, |spec| spec["rounds"]["collect_min"] = json!(5)).await;
    world.up_to(1, RoundState::Sharing).await;
    world.act(RoundState::Sharing, |at| at < 4).await;
    let view = world.view(1).await;
    assert_eq!(view.phases.last().and_then(|phase| phase.min), Some(5));
    world.time_out().await;
    let view = world.view(1).await;
    assert_eq!((view.state, view.failure), (RoundState::Failed, Some(FailureReason::TooFewShares)));
    assert!(!view.spent, "nobody can have sent an input");
}
