//! Participants that are excused, give up, or are revoked: no phase waits for them.

use federation::round::RoundState;
use serde_json::json;
use wire::participant::CheckInReply;
use wire::route;

use crate::support::secure::World;

const PHASES: [RoundState; 4] =
    [RoundState::Sharing, RoundState::Collecting, RoundState::Confirming, RoundState::Unmasking];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaves {
    Excused,
    GivesUp,
    Revoked,
}

async fn leave(world: &World, at: usize, leaves: Leaves) {
    let (t, member) = (&world.t, &world.members[at]);
    let reply = match leaves {
        Leaves::Excused => {
            let path = route::fill(route::EXCUSE, &[&world.task, &1, &member.id]);
            t.post(&t.operator, &path, &json!({})).await
        }
        Leaves::GivesUp => {
            let body = json!({ "attempt": 1, "reason": "conditions" });
            t.post(&member.who, &route::abandon(world.task, 1, member.id), &body).await
        }
        Leaves::Revoked => {
            let path = route::fill(route::PARTICIPANT_REVOKE, &[&member.id]);
            t.post(&t.operator, &path, &json!({})).await
        }
    };
    assert!(reply.status.is_success(), "{leaves:?}: {}", String::from_utf8_lossy(&reply.body));
    t.work().await;
}

#[tokio::test]
async fn no_phase_waits_for_whoever_leaves() {
    for leaves in [Leaves::Excused, Leaves::GivesUp, Leaves::Revoked] {
        for phase in PHASES {
            let mut world = World::new(5).await;
            world.up_to(1, phase).await;
            leave(&world, 4, leaves).await;
            assert_eq!(world.state(1).await, phase, "four are still waited for");
            for phase in PHASES.into_iter().filter(|later| *later >= phase) {
                assert_eq!(world.state(1).await, phase, "{leaves:?}");
                // No time passes: the round does not wait for excused participants.
                world.act(phase, |at| at < 4).await;
            }
            let view = world.view(1).await;
            assert_eq!(view.state, RoundState::Completed, "{leaves:?} in {phase}");
            let included = phase > RoundState::Collecting;
            assert_eq!(world.released(1).await, Some(world.plain(1, |at| at < 4 || included)));
            assert_eq!(view.dropped_in, [(phase, 1)].into(), "{leaves:?} in {phase}");
        }
    }
}

#[tokio::test]
async fn whoever_leaves_after_its_part_in_a_phase_is_not_waited_for_in_the_next() {
    for leaves in [Leaves::Excused, Leaves::GivesUp, Leaves::Revoked] {
        for phase in [RoundState::Sharing, RoundState::Collecting, RoundState::Confirming] {
            let mut world = World::new(5).await;
            world.up_to(1, phase).await;
            // It takes part in this phase, and leaves before the others act.
            world.act(phase, |at| at == 4).await;
            leave(&world, 4, leaves).await;
            world.act(phase, |at| at < 4).await;
            for later in PHASES.into_iter().filter(|later| *later > phase) {
                assert_eq!(world.state(1).await, later, "{leaves:?} after its part in {phase}");
                world.act(later, |at| at < 4).await;
            }
            assert_eq!(world.state(1).await, RoundState::Completed, "{leaves:?} after its part in {phase}");
            let included = phase > RoundState::Sharing;
            assert_eq!(world.released(1).await, Some(world.plain(1, |at| at < 4 || included)));
        }
    }
}

#[tokio::test]
async fn when_too_many_leave_the_round_fails_at_once() {
    for phase in PHASES {
        let mut world = World::new(5).await;
        world.up_to(1, phase).await;
        for at in 2..5 {
            leave(&world, at, Leaves::GivesUp).await;
        }
        let view = world.assert_failed(1, federation::round::FailureReason::QuorumLost).await;
        assert_eq!(view.spent, phase != RoundState::Sharing, "{phase}");
    }
}

#[tokio::test]
async fn whoever_gave_up_is_free_for_other_work() {
    let mut world = World::new(5).await;
    world.up_to(1, RoundState::Confirming).await;
    leave(&world, 4, Leaves::GivesUp).await;
    let reply = world.members[4].check_in(&world.t).await;
    assert!(matches!(reply, CheckInReply::ComeBack { .. }), "{reply:?}");
    let reply = world.members[3].check_in(&world.t).await;
    assert!(matches!(reply, CheckInReply::Assigned(_)), "{reply:?}");
}
