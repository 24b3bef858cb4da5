//! A coordinator killed at any point: the same session continues, or the round fails; never another sum.

use std::sync::Arc;

use coordinator::work::StepError;
use federation::round::{FailureReason, RoundState};
use serde_json::json;
use wire::participant::CheckInReply;

use crate::support::die_at::DieAt;
use crate::support::secure::{Drops, LEASE, World};

const PHASES: [RoundState; 4] =
    [RoundState::Sharing, RoundState::Collecting, RoundState::Confirming, RoundState::Unmasking];

async fn world() -> World {
    World::on_disk(3, |spec| spec["rounds"]["count"] = json!(1)).await
}

#[tokio::test]
async fn killed_between_any_two_writes_the_same_sum_is_released() {
    let mut calm = world().await;
    let counter = DieAt::never();
    let (expected, _) = calm.outlive(Arc::clone(&counter)).await;
    assert_eq!(calm.released(1).await, Some(calm.plain(1, |_| true)));
    let reached = counter.reached.lock().unwrap().clone();
    for (point, times) in [
        ("open_round: before the row", 1),
        ("open_round: after the row", 1),
        ("close_phase: before the rows", 5),
        ("close_phase: after the rows", 5),
        ("sum_chunk: before the blob", 1),
        ("sum_chunk: after the blob", 1),
        ("sum_chunk: after the rows", 1),
        ("release_sum: before the blob", 1),
        ("release_sum: after the blob", 1),
        ("release_sum: after the rows", 1),
        ("publish_version: before the blob", 1),
        ("publish_version: after the blob", 1),
        ("publish_version: after the rows", 1),
    ] {
        assert_eq!(reached.get(point), Some(&times), "{point}: {reached:?}");
    }
    for n in 0..reached.values().sum() {
        let mut world = world().await;
        let (digests, deaths) = world.outlive(DieAt::nth(n)).await;
        assert_eq!((digests, deaths), (expected.clone(), 1), "killed at point {n}");
        assert_eq!(world.released(1).await, Some(world.plain(1, |_| true)), "killed at point {n}");
    }
}

#[tokio::test]
async fn killed_in_any_phase_the_same_session_goes_on() {
    for phase in PHASES {
        let mut world = World::on_disk(5, |_| {}).await;
        world.up_to(1, phase).await;
        let before = world.members[1].place.clone().unwrap();
        world.act(phase, |at| at == 0).await;
        world.restart().await;
        // A killed participant gets its place again, and resumes from its journal.
        let place = world.members[1].assigned(&world.t).await;
        assert_eq!((place.round, place.attempt, &place.base), (1, 1, &before.base), "{phase}");
        world.members[1].restore();
        world.act(phase, |at| at > 0).await;
        for later in PHASES.into_iter().filter(|later| *later > phase) {
            world.restart().await;
            world.act(later, |_| true).await;
        }
        let view = world.view(1).await;
        assert_eq!((view.state, view.attempt), (RoundState::Completed, 1), "{phase}");
        assert_eq!(world.released(1).await, Some(world.plain(1, |_| true)));
    }
}

#[tokio::test]
async fn killed_while_it_selects_the_keys_that_were_given_still_count() {
    let mut world = World::on_disk(3, |_| {}).await;
    world.t.work().await;
    for member in &mut world.members {
        member.join(&world.t).await;
    }
    world.restart().await;
    world.t.work().await;
    world.assign(|_| true).await;
    for phase in PHASES {
        world.act(phase, |_| true).await;
    }
    assert_eq!(world.released(1).await, Some(world.plain(1, |_| true)));
}

#[tokio::test]
async fn without_the_sealing_key_what_was_answered_is_lost_and_the_round_fails() {
    // One or all of the answers were sealed with the lost key.
    for answered in [1, 5] {
        let mut world = World::on_disk(5, |_| {}).await;
        world.up_to(1, RoundState::Unmasking).await;
        for member in &mut world.members[..answered] {
            member.unmask(&world.t).await;
        }
        world.lose_seal_key();
        world.restart().await;
        world.act(RoundState::Unmasking, |at| at >= answered).await;
        let view = world.assert_failed(1, FailureReason::InputLost).await;
        assert!(view.spent);
        world.t.advance(crate::support::secure::PHASE);
        world.t.work().await;
        assert_eq!(world.complete(2).await.model.unwrap().version, 1);
    }
}

#[tokio::test]
async fn before_anything_is_sealed_the_key_makes_no_difference() {
    let mut world = World::on_disk(3, |_| {}).await;
    world.up_to(1, RoundState::Confirming).await;
    world.lose_seal_key();
    world.restart().await;
    world.act(RoundState::Confirming, |_| true).await;
    world.act(RoundState::Unmasking, |_| true).await;
    assert_eq!(world.released(1).await, Some(world.plain(1, |_| true)));
}

#[tokio::test]
async fn killed_when_a_phase_has_run_into_its_deadline() {
    let mut world = World::on_disk(5, |_| {}).await;
    world.up_to(1, RoundState::Collecting).await;
    world.act(RoundState::Collecting, |at| at > 0).await;
    world.t.advance(crate::support::secure::PHASE);
    world.restart().await;
    world.t.work().await;
    world.act(RoundState::Confirming, |at| at > 1).await;
    world.restart().await;
    world.time_out().await;
    world.act(RoundState::Unmasking, |at| at > 1).await;
    let view = world.view(1).await;
    assert_eq!(view.state, RoundState::Completed);
    assert_eq!(view.dropped_in, [(RoundState::Collecting, 1), (RoundState::Confirming, 1)].into());
    assert_eq!(world.released(1).await, Some(world.plain(1, |at| at > 0)));
}

#[tokio::test]
async fn a_place_is_given_again_until_the_last_answer() {
    let mut world = World::new(5).await;
    world.up_to(1, RoundState::Sharing).await;
    for phase in PHASES {
        assert_eq!(world.members[0].assigned(&world.t).await.round, 1, "before its part in {phase}");
        world.act(phase, |at| at == 0).await;
        let reply = world.members[0].check_in(&world.t).await;
        let over = phase == RoundState::Unmasking;
        assert_eq!(matches!(reply, CheckInReply::Assigned(_)), !over, "after its part in {phase}: {reply:?}");
        world.act(phase, |at| at > 0).await;
    }
    assert_eq!(world.state(1).await, RoundState::Completed);
    let view = world.run(2, &[Drops::Never; 5]).await;
    assert_eq!(view.state, RoundState::Completed);
}

#[tokio::test]
async fn cancelled_while_the_sum_is_opened_nothing_is_released() {
    let mut world = world().await;
    world.up_to(1, RoundState::Unmasking).await;
    for member in &mut world.members {
        member.unmask(&world.t).await;
    }
    let died = world.engine(DieAt::nth(3), 1).step_all().await;
    assert!(matches!(died, Err(StepError::Stopped("release_sum: after the blob"))), "{died:?}");
    assert_eq!(world.t.post(&world.t.operator, "/v1/tasks/secure/cancel", &json!({})).await.status, 200);
    world.restart().await;
    world.t.advance(LEASE);
    world.t.work().await;
    assert_eq!(world.state(1).await, RoundState::Cancelled);
    assert_eq!(world.released(1).await, None);
    assert_eq!(world.digests().await.len(), 1, "the initial model");
}
