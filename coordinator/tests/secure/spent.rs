//! Failed rounds: before inputs can be out, the number is retried; afterwards it is spent, and the next one trains anew.

use coordinator::work::StepError;
use federation::round::{FailureReason, RoundState};
use federation::task_status::TaskStatus;
use secure_agg::codec::Message as _;
use secure_agg::messages::{MaskedInputBody, Signed, Unmasking};
use serde_json::{Value, json};
use wire::participant::{Announcement, Answer, CheckInReply};
use wire::problem::ProblemType;

use crate::support::die_at::DieAt;
use crate::support::secure::{Drops, PHASE, World};

async fn task(world: &World) -> Value {
    world.t.get(&world.t.viewer, "/v1/tasks/secure").await.json()
}

/// Waits for the end of the pause after a failure.
async fn next_attempt(world: &World) {
    world.t.advance(PHASE);
    world.t.work().await;
}

#[tokio::test]
async fn what_fails_before_inputs_can_be_out_is_tried_again_under_the_same_number() {
    let mut world = World::new(5).await;
    // No participant checks in.
    world.t.work().await;
    world.time_out().await;
    assert!(!world.assert_failed(1, FailureReason::TooFewParticipants).await.spent);
    next_attempt(&world).await;
    assert_eq!(world.view(1).await.attempt, 2);
    // They check in, and fall silent.
    let view = world.run(1, &[Drops::Shares; 5]).await;
    assert_eq!((view.attempt, view.spent), (2, false));
    world.assert_failed(1, FailureReason::TooFewShares).await;
    next_attempt(&world).await;
    // All are invited to the next attempt, with fresh keys.
    let invitation = world.members[0].invited(&world.t).await;
    assert_eq!((invitation.round, invitation.attempt), (1, 3));
    let view = world.complete(1).await;
    assert_eq!((view.attempt, view.model.unwrap().version), (3, 1));
    assert_eq!(world.released(1).await, Some(world.plain(1, |_| true)));
}

#[tokio::test]
async fn what_fails_later_spends_its_number_and_versions_stay_consecutive() {
    let mut world = World::new(5).await;
    let mut number = 0;
    for (silent, reason) in [
        (Drops::Input, FailureReason::TooFewInputs),
        (Drops::Signature, FailureReason::TooFewConfirmations),
        (Drops::Answer, FailureReason::TooFewUnmaskShares),
    ] {
        number += 1;
        let mut drops = [silent; 5];
        drops[..2].fill(Drops::Never);
        let view = world.run(number, &drops).await;
        assert_eq!((view.attempt, view.spent), (1, true));
        world.assert_failed(number, reason).await;
        next_attempt(&world).await;
    }
    let view = world.complete(4).await;
    assert_eq!((view.base.version, view.model.unwrap().version), (0, 1));
    assert_eq!(world.released(4).await, Some(world.plain(4, |_| true)));
    let after = task(&world).await;
    assert_eq!((&after["status"], &after["rounds_completed"]), (&json!("ACTIVE"), &json!(1)));
    // The task requires two completed rounds, with any numbers.
    assert_eq!(world.complete(5).await.model.unwrap().version, 2);
    let after = task(&world).await;
    assert_eq!((&after["status"], &after["model_version"]), (&json!("COMPLETED"), &json!(2)));
    let rounds = world.t.get(&world.t.viewer, "/v1/tasks/secure/rounds").await.json();
    let told: Vec<_> = rounds["items"].as_array().unwrap().iter().map(|round| round["number"].clone()).collect();
    assert_eq!(told, [5, 4, 3, 2, 1]);
}

#[tokio::test]
async fn a_phase_that_has_everything_closes_though_nobody_worked_until_its_deadline() {
    let mut world = World::new(3).await;
    world.up_to(1, RoundState::Unmasking).await;
    for member in &mut world.members {
        member.unmask(&world.t).await;
    }
    world.t.advance(PHASE);
    world.t.work().await;
    assert_eq!(world.state(1).await, RoundState::Completed);
}

#[tokio::test]
async fn a_sum_that_is_not_released_in_time_spends_its_number() {
    let mut world = World::on_disk(3, |_| {}).await;
    world.up_to(1, RoundState::Unmasking).await;
    let mut answer = Vec::new();
    for member in &mut world.members {
        answer = member.reveal(&world.t).await;
        assert_eq!(member.say(&world.t, Answer::UnmaskShares, &answer).await.status, 204);
    }
    // It dies with the sum in memory: two points of closing the phase, then the first of releasing.
    let died = world.engine(DieAt::nth(2), 1).step_all().await;
    assert!(matches!(died, Err(StepError::Stopped("release_sum: before the blob"))), "{died:?}");
    assert_eq!(world.state(1).await, RoundState::Aggregating);
    let last = world.members.last().unwrap();
    assert_eq!(last.say(&world.t, Answer::UnmaskShares, &answer).await.status, 204, "it was heard");
    assert!(matches!(last.check_in(&world.t).await, CheckInReply::ComeBack { .. }), "nothing is asked of it");
    world.time_out().await;
    let view = world.assert_failed(1, FailureReason::AggregationTimedOut).await;
    assert!(view.spent);
    let key = federation::id::RoundKey { task: world.task, number: 1 };
    let kind = store::entity::session_message::MessageKind::Unmasking;
    let kept = world.t.inner.store.read("test", |tx| Box::pin(async move { tx.messages(key.attempt(1), kind).await }));
    assert!(kept.await.unwrap().iter().all(|message| message.message.is_none()), "what opens the sum is gone");
    next_attempt(&world).await;
    assert_eq!(world.complete(2).await.model.unwrap().version, 1);
}

#[tokio::test]
async fn garbage_under_a_mask_shows_in_the_sum_and_spends_the_number() {
    let mut world = World::new(4).await;
    world.up_to(1, RoundState::Collecting).await;
    let said = world.members[0].mask(&world.t, &world.model).await.body;
    let body = vec![0x5a; world.members[0].masked.len()];
    let digest = secure_agg::upload::digest(&body);
    let liar = &world.members[0];
    let signed = Signed::sign(MaskedInputBody { digest, ..said }, &liar.signer).unwrap();
    assert_eq!(world.t.send(&liar.who, liar.upload(&body, &signed)).await.status, 200);
    world.act(RoundState::Collecting, |at| at > 0).await;
    world.act(RoundState::Confirming, |_| true).await;
    world.act(RoundState::Unmasking, |_| true).await;
    let view = world.view(1).await;
    assert_eq!((view.failure, view.spent, view.model), (Some(FailureReason::GarbageSum), true, None));
    next_attempt(&world).await;
    assert_eq!(world.complete(2).await.model.unwrap().version, 1);
}

/// All answer; these swap two of their received shares.
async fn lied_to(liars: usize, answers: usize) -> World {
    let mut world = World::new(5).await;
    world.up_to(1, RoundState::Unmasking).await;
    for at in 0..answers {
        let bytes = world.members[at].reveal(&world.t).await;
        let mut body = Unmasking::decode(&bytes).unwrap().body;
        if at < liars {
            let mut shares: Vec<_> = body.shares.as_slice().to_vec();
            shares.swap(0, 1);
            body.shares = shares.into();
        }
        let signed = Signed::sign(body, &world.members[at].signer).unwrap().encode();
        assert_eq!(world.members[at].say(&world.t, Answer::UnmaskShares, &signed).await.status, 204);
    }
    world.t.work().await;
    if answers < 5 {
        world.time_out().await;
    }
    world
}

#[tokio::test]
async fn wrong_answers_are_corrected_if_there_are_enough_right_ones_and_never_believed() {
    // t = 3: of five answers one may be wrong, of three none.
    let world = lied_to(1, 5).await;
    assert_eq!(world.state(1).await, RoundState::Completed);
    assert_eq!(world.released(1).await, Some(world.plain(1, |_| true)));
    for (liars, answers) in [(1, 3), (3, 5)] {
        let mut world = lied_to(liars, answers).await;
        assert!(world.assert_failed(1, FailureReason::UnmaskingFailed).await.spent, "{liars} of {answers}");
        next_attempt(&world).await;
        assert_eq!(world.complete(2).await.model.unwrap().version, 1);
    }
}

#[tokio::test]
async fn failed_attempts_are_counted_across_spent_numbers_until_the_task_is_paused() {
    let mut world = World::with(5, |spec| spec["rounds"]["max_attempts"] = json!(3)).await;
    let mut quorum_lost = [Drops::Input; 5];
    quorum_lost[0] = Drops::Never;
    for (number, drops) in [(1, [Drops::Shares; 5]), (1, quorum_lost), (2, quorum_lost)] {
        assert_eq!(task(&world).await["status"], "ACTIVE");
        world.run(number, &drops).await;
        assert_eq!(world.state(number).await, RoundState::Failed);
        next_attempt(&world).await;
    }
    let paused = task(&world).await;
    assert_eq!(paused["status"], TaskStatus::Paused.as_str());
    let why = paused["history"].as_array().unwrap().last().unwrap()["detail"].as_str().unwrap().to_owned();
    assert!(why.contains("3 failed attempts"), "{why}");
    world.t.get(&world.t.viewer, "/v1/tasks/secure/rounds/3").await.problem(ProblemType::NotFound);
    // An operator grants as many again; a completed round resets the count.
    world.t.post(&world.t.operator, "/v1/tasks/secure/resume", &json!({})).await;
    assert_eq!(world.complete(3).await.model.unwrap().version, 1);
}

#[tokio::test]
async fn a_cancelled_round_lets_everybody_go_and_forgets_its_session() {
    for phase in [RoundState::Sharing, RoundState::Collecting, RoundState::Confirming, RoundState::Unmasking] {
        let mut world = World::new(3).await;
        world.up_to(1, phase).await;
        assert_eq!(world.t.post(&world.t.operator, "/v1/tasks/secure/cancel", &json!({})).await.status, 200);
        assert_eq!(world.state(1).await, RoundState::Cancelled);
        let member = &world.members[0];
        assert!(matches!(member.check_in(&world.t).await, CheckInReply::TaskOver { .. }), "{phase}");
        let roster = world.t.get(&member.who, &member.announcement(Announcement::Roster, 0)).await;
        roster.problem(ProblemType::PhaseClosed);
        let key = federation::id::RoundKey { task: world.task, number: 1 };
        let kept =
            world.t.inner.store.read("test", |tx| Box::pin(async move { tx.session(key.attempt(1)).await })).await;
        assert_eq!(kept.unwrap(), None);
    }
}
