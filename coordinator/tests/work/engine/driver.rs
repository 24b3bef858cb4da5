//! The engine on its own: wakes, processes several tasks, stops in order.

use std::sync::Arc;
use std::time::Duration;

use federation::round::RoundState;
use federation::task_status::TaskStatus;
use store::WakeEvent;
use tokio_util::sync::CancellationToken;

use crate::world::World;

/// Waits until the round is in `state`; the engine under test must bring it there.
async fn until(world: &World, number: u32, state: RoundState) {
    let mut wakes = world.store.wake().subscribe();
    loop {
        let present = world.store.read("test", |tx| {
            let key = world.key(number);
            Box::pin(async move { tx.round(key).await })
        });
        if present.await.unwrap().is_some_and(|row| row.round.state == state) {
            return;
        }
        wakes.next().await.unwrap();
    }
}

#[tokio::test]
async fn a_running_engine_takes_a_task_to_its_end_on_wake_ups_alone() {
    let mut world = World::new(4).await;
    // Without wake-ups, this test would hang.
    world.config.poll_interval = Duration::from_secs(3600);
    let world = Arc::new(world);
    let shutdown = CancellationToken::new();
    let engine = world.engine(1);
    let running = tokio::spawn({
        let shutdown = shutdown.clone();
        async move { engine.run(shutdown).await }
    });
    for number in 1..=3 {
        until(&world, number, RoundState::Selecting).await;
        world.check_in_all().await;
        world.store.wake().publish(WakeEvent::Work);
        until(&world, number, RoundState::Collecting).await;
        world.report_all().await;
        world.store.wake().publish(WakeEvent::Work);
        until(&world, number, RoundState::Completed).await;
    }
    shutdown.cancel();
    running.await.unwrap();
    assert_eq!(world.task_row().await.status, TaskStatus::Completed);
}

#[tokio::test]
async fn polling_makes_up_for_lost_wake_ups() {
    let mut world = World::new(3).await;
    world.config.poll_interval = Duration::from_millis(5);
    let engine = world.engine(1);
    let shutdown = CancellationToken::new();
    let running = tokio::spawn({
        let shutdown = shutdown.clone();
        async move { engine.run(shutdown).await }
    });
    until(&world, 1, RoundState::Selecting).await;
    world.check_in_all().await;
    until(&world, 1, RoundState::Collecting).await;
    world.report_all().await;
    until(&world, 1, RoundState::Completed).await;
    shutdown.cancel();
    running.await.unwrap();
}

#[tokio::test]
async fn a_stopped_engine_leaves_no_lease_behind() {
    let world = World::new(3).await;
    let shutdown = CancellationToken::new();
    let engine = world.engine(1);
    world.start_round(&engine).await;
    world.report_all().await;
    let running = tokio::spawn({
        let (engine, shutdown) = (engine.clone(), shutdown.clone());
        async move { engine.run(shutdown).await }
    });
    until(&world, 1, RoundState::Completed).await;
    shutdown.cancel();
    running.await.unwrap();
    // Another engine can continue at once, without waiting for a lease to expire.
    let other = world.engine(2);
    world.run_round(&other).await;
    assert_eq!(world.round(2).await.round.state, RoundState::Completed);
}

#[tokio::test]
async fn an_engine_that_is_told_to_stop_first_does_nothing() {
    let world = World::new(3).await;
    let shutdown = CancellationToken::new();
    shutdown.cancel();
    world.engine(1).run(shutdown).await;
    assert!(world.present().await.is_none());
}
