//! Unavailable blob stores and full disks: data survives, and work resumes afterwards.

use coordinator::work::StepError;
use federation::round::{FailureReason, RoundState};
use store::{StoreError, WakeEvent};
use tokio_util::sync::CancellationToken;

use crate::world::faulty_blobs::Fault;
use crate::world::{DEADLINE, World};

async fn with_all_inputs(world: &World) {
    world.start_round(&world.engine(1)).await;
    world.report_all().await;
}

#[tokio::test]
async fn while_the_blob_store_is_away_the_round_waits_and_then_goes_on() {
    let world = World::new(3).await;
    with_all_inputs(&world).await;
    let engine = world.engine(2);
    world.blobs.set(Fault::Away);
    for _ in 0..3 {
        assert!(matches!(engine.step_all().await, Err(StepError::Store(StoreError::Fault(_)))));
        assert_eq!(world.round(1).await.round.state, RoundState::Aggregating);
    }
    world.blobs.set(Fault::None);
    // Another engine need not wait: an error gives up the lease.
    world.engine(3).step_all().await.unwrap();
    assert_eq!(world.round(1).await.round.state, RoundState::Completed);
}

#[tokio::test]
async fn a_blob_store_that_stays_away_fails_the_round_at_its_deadline() {
    let world = World::new(3).await;
    with_all_inputs(&world).await;
    let engine = world.engine(2);
    world.blobs.set(Fault::Away);
    assert!(engine.step_all().await.is_err());
    world.clock.advance(DEADLINE);
    engine.step_all().await.unwrap();
    world.assert_failed(1, FailureReason::AggregationTimedOut).await;
}

#[tokio::test]
async fn a_full_disk_keeps_the_step_waiting_for_room() {
    let world = World::new(3).await;
    with_all_inputs(&world).await;
    let engine = world.engine(2);
    world.blobs.set(Fault::Full);
    assert!(matches!(engine.step_all().await, Err(StepError::Store(StoreError::Full))));
    world.blobs.set(Fault::None);
    engine.step_all().await.unwrap();
    assert_eq!(world.round(1).await.round.state, RoundState::Completed);
}

#[tokio::test]
async fn a_full_disk_is_told_while_a_large_sum_is_written_piece_by_piece() {
    let mut world = World::in_slices(3, 300_000, |_| {}).await;
    world.config.fold_inputs = 100;
    with_all_inputs(&world).await;
    let before = world.blobs.all().await;
    let engine = world.engine(2);
    world.blobs.set(Fault::Full);
    assert!(matches!(engine.step_all().await, Err(StepError::Store(StoreError::Full))));
    assert_eq!(world.blobs.all().await, before);
    world.blobs.set(Fault::None);
    engine.step_all().await.unwrap();
    assert_eq!(world.round(1).await.round.state, RoundState::Completed);
}

#[tokio::test]
async fn a_running_engine_backs_off_and_comes_back_by_itself() {
    let world = World::new(3).await;
    with_all_inputs(&world).await;
    let engine = world.engine(2);
    let shutdown = CancellationToken::new();
    world.blobs.set(Fault::Full);
    let running = tokio::spawn({
        let shutdown = shutdown.clone();
        async move { engine.run(shutdown).await }
    });
    let mut wakes = world.store.wake().subscribe();
    while world.blobs.failures() < 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(world.round(1).await.round.state, RoundState::Aggregating);
    world.blobs.set(Fault::None);
    while world.round(1).await.round.state != RoundState::Completed {
        while wakes.next().await != Some(WakeEvent::Round(world.key(1))) {}
    }
    shutdown.cancel();
    running.await.unwrap();
}
