//! Invitations to rounds under secure aggregation, and the received keys.

use std::time::Duration;

use federation::round::RoundState;
use secure_agg::codec::Message as _;
use secure_agg::messages::{Advertise, Signed};
use serde_json::json;
use wire::participant::CheckInReply;
use wire::problem::ProblemType;
use wire::route;

use crate::support::member::keys_json;
use crate::support::secure::{PHASE, World};

#[tokio::test]
async fn a_round_under_secure_aggregation_invites_before_it_draws() {
    let mut world = World::new(3).await;
    let member = &world.members[0];
    assert!(matches!(member.check_in(&world.t).await, CheckInReply::ComeBack { .. }), "no round is open");
    world.t.work().await;
    let invitation = member.invited(&world.t).await;
    assert_eq!((invitation.task, invitation.round, invitation.attempt), (world.task, 1, 1));
    let terms = &invitation.terms;
    assert_eq!((terms.suite, terms.min_cohort, terms.max_cohort, terms.modulus_bits), (1, 3, 8, 32));
    assert_eq!((terms.max_corrupt, terms.max_dropout), (100_000, 300_000));
    assert_eq!(terms.words, u64::try_from(world.model.codec.len()).unwrap());
    // Participants without keys are not drawn.
    for member in &world.members {
        assert_eq!(member.invited(&world.t).await, invitation);
    }
    world.t.work().await;
    assert_eq!(world.state(1).await, RoundState::Selecting);
    world.join(|_| true).await;
    assert_eq!(world.state(1).await, RoundState::Sharing);
    let place = world.members[0].assigned(&world.t).await;
    assert_eq!((place.cohort, place.secure_aggregation.as_ref()), (3, Some(&invitation.terms)));
    // Training comes after the shares: both deadlines are its time.
    assert_eq!((place.remaining_ms, place.collect_ms), (1_200_000, Some(600_000)));
    world.assign(|_| true).await;
    world.act(RoundState::Sharing, |_| true).await;
    let place = world.members[0].assigned(&world.t).await;
    assert_eq!((place.remaining_ms, place.collect_ms), (600_000, None));
}

#[tokio::test]
async fn whoever_waits_is_invited_the_moment_a_round_opens() {
    let world = World::new(3).await;
    let body = json!({ "task": "secure", "examples": 10, "wait_ms": 60_000 });
    let wait = world.t.post(&world.members[0].who, route::CHECK_IN, &body);
    let open = async {
        tokio::time::sleep(Duration::from_millis(30)).await;
        world.t.work().await;
    };
    let (reply, ()) = tokio::join!(wait, open);
    assert!(matches!(reply.read(), CheckInReply::Invited(_)));
}

#[tokio::test]
async fn keys_of_another_participant_or_round_or_none_at_all_are_refused() {
    let mut world = World::new(3).await;
    world.t.work().await;
    let invitation = world.members[0].invited(&world.t).await;
    let keys = world.members[0].keys(&invitation);
    let good = world.members[0].client.as_ref().unwrap().resend();
    let (t, first, second) = (&world.t, &world.members[0], &world.members[1]);
    // Another member's keys.
    let detail = second.check_in_with(t, &keys).await.problem(ProblemType::SessionRejected);
    assert!(detail.starts_with("certificate"), "{detail}");
    // Its own content with another's signature; its own signature on another round's content.
    let body = Advertise::decode(&good).unwrap().body;
    let forged = Signed::sign(body.clone(), &second.signer).unwrap();
    let mut later = body.clone();
    later.round.attempt += 1;
    let later = Signed::sign(later, &first.signer).unwrap();
    let mut borrowed = body;
    borrowed.certificate = Advertise::decode(&good).unwrap().body.certificate.as_slice()[1..].to_vec().into();
    let borrowed = Signed::sign(borrowed, &first.signer).unwrap();
    for (advertise, code) in [(&forged, "signature"), (&later, "wrong_round"), (&borrowed, "certificate")] {
        let reply = first.check_in_with(t, &keys_json(&invitation, &advertise.encode())).await;
        let detail = reply.problem(ProblemType::SessionRejected);
        assert!(detail.starts_with(code), "{detail}");
    }
    for garbage in [&b""[..], b"keys", &good[1..], &[good.as_slice(), &[0; 5000]].concat()] {
        let reply = first.check_in_with(t, &keys_json(&invitation, garbage)).await;
        reply.problem(ProblemType::MalformedRequest);
    }
    let mut text = keys.clone();
    text["advertisement"] = json!("not base64!");
    first.check_in_with(t, &text).await.problem(ProblemType::MalformedRequest);
    // Keys for another attempt are ignored: the participant is invited again.
    for (field, value) in [("round", json!(2)), ("attempt", json!(2)), ("task", json!(uuid::Uuid::from_u128(7)))] {
        let mut stale = keys.clone();
        stale[field] = value;
        let reply: CheckInReply = first.check_in_with(t, &stale).await.read();
        assert_eq!(reply, CheckInReply::Invited(Box::new(invitation.clone())), "{field}");
    }
    t.work().await;
    assert!(matches!(first.check_in_with(t, &keys).await.read(), CheckInReply::ComeBack { .. }));
    assert_eq!(world.state(1).await, RoundState::Selecting, "none of it made anybody eligible");
}

#[tokio::test]
async fn whoever_has_no_keys_is_left_out_and_the_others_go_on() {
    let mut world = World::with(5, |spec| spec["selection"]["cohort"] = json!({ "count": 4 })).await;
    world.join(|at| at != 2).await;
    assert_eq!(world.view(1).await.cohort, 4);
    world.assign(|at| at != 2).await;
    // It is checked in, but this round no longer accepts keys.
    assert!(matches!(world.members[2].check_in(&world.t).await, CheckInReply::ComeBack { .. }));
    assert!(!world.assignments(1).await.contains_key(&world.members[2].id));
}

#[tokio::test]
async fn keys_for_one_attempt_are_none_for_the_next() {
    let mut world = World::new(3).await;
    world.join(|at| at > 0).await;
    assert_eq!(world.state(1).await, RoundState::Selecting);
    world.time_out().await;
    world.t.advance(PHASE);
    world.t.work().await;
    assert_eq!(world.view(1).await.attempt, 2);
    world.members[1].check_in(&world.t).await;
    let old = world.members[1].client.as_ref().unwrap().resend();
    let stale = keys_json(world.members[1].invitation.as_ref().unwrap(), &old);
    let reply: CheckInReply = world.members[1].check_in_with(&world.t, &stale).await.read();
    let CheckInReply::Invited(invitation) = reply else { panic!("{reply:?}") };
    assert_eq!((invitation.round, invitation.attempt), (1, 2));
    // Old keys under the new attempt's name.
    let renamed = keys_json(&invitation, &old);
    let detail = world.members[1].check_in_with(&world.t, &renamed).await.problem(ProblemType::SessionRejected);
    assert!(detail.starts_with("wrong_round"), "{detail}");
    world.join(|_| true).await;
    assert_eq!(world.state(1).await, RoundState::Sharing);
}

#[tokio::test]
async fn newer_keys_replace_older_ones() {
    let mut world = World::new(3).await;
    world.t.work().await;
    world.members[0].join(&world.t).await;
    // It was killed before its keys were durable, and made new ones.
    world.members[0].client = None;
    world.members[0].join_anew(&world.t).await;
    world.join(|at| at > 0).await;
    world.assign(|_| true).await;
    world.act(RoundState::Sharing, |_| true).await;
    assert_eq!(world.state(1).await, RoundState::Collecting);
}

#[tokio::test]
async fn with_somebody_elses_key_nobody_comes_in_and_the_others_are_not_held_up() {
    let mut world = World::new(4).await;
    world.t.work().await;
    let invitation = world.members[0].invited(&world.t).await;
    world.members[0].join(&world.t).await;
    let copied = Advertise::decode(&world.members[0].client.as_ref().unwrap().resend()).unwrap().body;
    // It signs keys read elsewhere.
    let _ = world.members[1].keys(&invitation);
    let mut body = Advertise::decode(&world.members[1].client.as_ref().unwrap().resend()).unwrap().body;
    (body.c_pk, body.s_pk) = (copied.c_pk, copied.s_pk);
    let thief = Signed::sign(body, &world.members[1].signer).unwrap().encode();
    let reply: CheckInReply = world.members[1].check_in_with(&world.t, &keys_json(&invitation, &thief)).await.read();
    assert!(matches!(reply, CheckInReply::ComeBack { .. }), "{reply:?}");
    world.join(|at| at > 1).await;
    let view = world.view(1).await;
    assert_eq!((view.state, view.cohort), (RoundState::Sharing, 3));
    assert!(!world.assignments(1).await.contains_key(&world.members[1].id));
    world.assign(|at| at != 1).await;
    world.act(RoundState::Sharing, |at| at != 1).await;
    assert_eq!(world.state(1).await, RoundState::Collecting);
}
