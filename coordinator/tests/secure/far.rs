//! Members with a slow connection: two seconds each way, and phases shorter than a round trip.

use std::time::Duration;

use federation::round::{FailureReason, RoundState};
use serde_json::json;
use wire::inspect::RoundView;

use crate::support;
use crate::support::secure::World;

const ONE_WAY: Duration = Duration::from_secs(2);
const PHASE_MS: u64 = 3000;

/// Five members, each with this reported round trip, if any.
async fn world(round_trips_ms: [Option<u32>; 5]) -> World {
    let mut config = support::config();
    config.http.poll_max_ms = 1000;
    let mut world = World::with_config(5, config, |spec| {
        for phase in ["share_deadline_ms", "confirm_deadline_ms", "unmask_deadline_ms"] {
            spec["secure_aggregation"][phase] = json!(PHASE_MS);
        }
        spec["rounds"]["collect_deadline_ms"] = json!(PHASE_MS);
    })
    .await;
    for (member, told) in world.members.iter_mut().zip(round_trips_ms) {
        member.round_trip_ms = told;
    }
    world
}

/// One phase after the other: each announcement arrives two seconds late, and each answer takes two more.
async fn far_away(world: &mut World) -> RoundView {
    world.join(|_| true).await;
    world.assign(|_| true).await;
    for phase in [RoundState::Sharing, RoundState::Collecting, RoundState::Confirming, RoundState::Unmasking] {
        assert_eq!(world.state(1).await, phase);
        world.t.advance(2 * ONE_WAY);
        world.t.work().await;
        if world.state(1).await != phase {
            break;
        }
        world.act(phase, |_| true).await;
    }
    world.view(1).await
}

#[tokio::test]
async fn phases_wait_for_lines_that_are_longer_than_they_are() {
    let view = far_away(&mut world([Some(4000); 5]).await).await;
    assert_eq!((view.state, view.failure, view.reported), (RoundState::Completed, None, 5));
    assert_eq!(view.round_trip_ms, Some(4000));
}

#[tokio::test]
async fn without_knowing_of_lines_phases_end_as_the_task_says() {
    let view = far_away(&mut world([None; 5]).await).await;
    assert_eq!((view.state, view.failure), (RoundState::Failed, Some(FailureReason::TooFewShares)));
    assert_eq!(view.round_trip_ms, None);
}

#[tokio::test]
async fn whoever_lies_about_its_line_gets_no_phase_to_last_twice_as_long_as_it_may() {
    let mut world = world([Some(u32::MAX), None, None, None, None]).await;
    world.join(|_| true).await;
    let deadline = world.view(1).await.phases.last().unwrap().clone();
    assert_eq!(deadline.state, RoundState::Sharing);
    assert_eq!(deadline.deadline_at, Some(deadline.started_at.plus(Duration::from_millis(2 * PHASE_MS))));
}
