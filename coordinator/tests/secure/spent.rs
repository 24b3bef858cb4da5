//! Rounds that fail: before inputs can be out the number is tried again; after that it is spent, and the next one trains anew.

use federation::round::{FailureReason, RoundState};
use federation::task::TaskStatus;
use serde_json::{Value, json};
use wire::participant::{Announcement, CheckInReply};
use wire::problem::ProblemType;

use crate::support::secure::{Drops, PHASE, World};

async fn task(world: &World) -> Value {
    world.t.get(&world.t.viewer, "/v1/tasks/secure").await.json()
}

/// Waits for the pause after a failure to be over.
async fn next_attempt(world: &World) {
    world.t.advance(PHASE);
    world.t.work().await;
}

#[tokio::test]
async fn what_fails_before_inputs_can_be_out_is_tried_again_under_the_same_number() {
    let mut world = World::new(5).await;
    // Nobody comes.
    world.t.work().await;
    world.time_out().await;
    assert!(!world.assert_failed(1, FailureReason::TooFewParticipants).await.spent);
    next_attempt(&world).await;
    assert_eq!(world.view(1).await.attempt, 2);
    // They come, and fall silent.
    let view = world.run(1, &[Drops::Shares; 5]).await;
    assert_eq!((view.attempt, view.spent), (2, false));
    world.assert_failed(1, FailureReason::TooFewShares).await;
    next_attempt(&world).await;
    // Everybody is invited to the next attempt, and has fresh keys for it.
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
    // Two completed rounds were asked for, whatever their numbers.
    assert_eq!(world.complete(5).await.model.unwrap().version, 2);
    let after = task(&world).await;
    assert_eq!((&after["status"], &after["model_version"]), (&json!("COMPLETED"), &json!(2)));
    let rounds = world.t.get(&world.t.viewer, "/v1/tasks/secure/rounds").await.json();
    let told: Vec<_> = rounds["items"].as_array().unwrap().iter().map(|round| round["number"].clone()).collect();
    assert_eq!(told, [5, 4, 3, 2, 1]);
}

#[tokio::test]
async fn a_sum_that_cannot_be_released_in_time_spends_its_number() {
    let mut world = World::new(3).await;
    world.up_to(1, RoundState::Unmasking).await;
    for member in &mut world.members {
        member.unmask(&world.t).await;
    }
    // Nobody works until the phase is over; the answers are there, so it closes all the same.
    world.t.advance(PHASE);
    let engine = world.t.inner.engine.clone();
    engine.step_all().await.unwrap();
    assert_eq!(world.state(1).await, RoundState::Completed);
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
    // An operator grants as many again; a completed round starts the count anew.
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
        let kept = world.t.inner.store.read("test", |tx| Box::pin(async move { tx.session(key, 1).await })).await;
        assert_eq!(kept.unwrap(), None);
    }
}
