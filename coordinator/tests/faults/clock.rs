//! Clock jumps: a round is early or late, but always ends.

use std::time::Duration;

use federation::round::{FailureReason, RoundState};
use federation::time::{Clock as _, Timestamp};

use crate::world::{DEADLINE, START, World};

const DAY: i64 = 24 * 3600 * 1000;

#[tokio::test]
async fn a_clock_that_jumps_back_gives_the_phase_its_time_anew() {
    let world = World::new(3).await;
    let engine = world.engine(1);
    engine.step_all().await.unwrap();
    world.clock.set(Timestamp(START.0 - DAY));
    engine.step_all().await.unwrap();
    let round = world.round(1).await.round;
    assert_eq!((round.state, round.state_since), (RoundState::Selecting, world.clock.now()));
    world.clock.advance(DEADLINE);
    engine.step_all().await.unwrap();
    world.assert_failed(1, FailureReason::TooFewParticipants).await;
}

#[tokio::test]
async fn a_whole_task_runs_while_the_clock_jumps_back_before_every_step() {
    let calm = World::new(4).await;
    for _ in 0..3 {
        calm.run_round(&calm.engine(1)).await;
    }
    let world = World::new(4).await;
    let engine = world.engine(1);
    let back = |n: i64| world.clock.set(Timestamp(START.0 - n * DAY));
    for number in 0..3 {
        back(number * 10);
        engine.step_all().await.unwrap();
        back(number * 10 + 1);
        world.check_in_all().await;
        engine.step_all().await.unwrap();
        back(number * 10 + 2);
        world.report_all().await;
        engine.step_all().await.unwrap();
        back(number * 10 + 3);
    }
    assert_eq!(world.digests().await, calm.digests().await);
}

#[tokio::test]
async fn a_clock_that_jumps_forward_ends_phases_by_their_own_rules() {
    let world = World::new(4).await;
    let engine = world.engine(1);
    let cohort = world.start_round(&engine).await;
    for participant in &cohort[..2] {
        assert!(world.report(*participant).await);
    }
    world.clock.advance(Duration::from_secs(365 * 24 * 3600));
    engine.step_all().await.unwrap();
    let row = world.round(1).await;
    assert_eq!((row.round.state, row.reported), (RoundState::Completed, 2), "half of the cohort is enough");
    assert_eq!(world.round(2).await.round.state, RoundState::Selecting);
}

#[tokio::test]
async fn the_pause_after_a_failure_does_not_outlast_a_clock_that_was_set_back() {
    let world = World::new(3).await;
    let engine = world.engine(1);
    engine.step_all().await.unwrap();
    world.clock.advance(DEADLINE);
    engine.step_all().await.unwrap();
    world.assert_failed(1, FailureReason::TooFewParticipants).await;
    world.clock.set(Timestamp(START.0 - DAY));
    engine.step_all().await.unwrap();
    let round = world.round(1).await.round;
    assert_eq!((round.key.attempt, round.state), (2, RoundState::Selecting));
}

#[tokio::test]
async fn a_lease_from_the_future_holds_nobody_up() {
    let world = World::new(3).await;
    world.hold_lease(DEADLINE).await;
    let engine = world.engine(1);
    assert_eq!(engine.step_all().await.unwrap(), 0);
    world.clock.set(Timestamp(START.0 - DAY));
    assert_eq!(engine.step_all().await.unwrap(), 1);
}
