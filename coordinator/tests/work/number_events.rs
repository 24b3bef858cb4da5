//! Events get positions without gaps in a signed chain, by any process and after any crash.

use std::sync::Arc;
use std::time::Duration;

use coordinator::work::StepError;
use federation::event::EventKind;
use federation::task_status::TaskStatus;
use federation::time::Clock as _;
use store::WakeEvent;
use store::entity::event::{AuditHead, EventFilter};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use wire::audit::{ChainEnd, Entry, Head, Hex};

use crate::world::World;

/// Reads the log and checks its chain, and its newest head with a signature for the entry at its position.
async fn log(world: &World) -> (Vec<Entry>, Option<Head>) {
    let read = world.store.read("test", |tx| {
        Box::pin(async move {
            let rows = tx.events_after(0, &EventFilter::default(), 10_000).await?;
            Ok::<_, store::StoreError>((rows, tx.last_audit_head().await?))
        })
    });
    let (rows, head) = read.await.unwrap();
    let entries: Vec<_> =
        rows.into_iter().map(|row| Entry { position: row.position, event: row.event, hash: row.hash }).collect();
    entries.iter().try_fold(ChainEnd::default(), |end, entry| end.check(entry)).unwrap();
    let head = head.map(|AuditHead { position, hash, at, public_key, signature }| {
        let (key, signature) = (Hex(public_key.try_into().unwrap()), Hex(signature.try_into().unwrap()));
        Head { position, hash, at, key, signature }
    });
    if let Some(head) = &head {
        assert!(head.is_signed());
        assert_eq!(entries[usize::try_from(head.position).unwrap() - 1].hash, head.hash);
    }
    (entries, head)
}

#[tokio::test]
async fn whatever_happened_is_placed_chained_and_signed() {
    let world = World::new(3).await;
    let engine = world.engine(1);
    world.run_round(&engine).await;
    assert_eq!(log(&world).await, (vec![], None));
    let placed = engine.number_events().await.unwrap();
    let (entries, head) = log(&world).await;
    assert_eq!(entries.len(), placed);
    assert_eq!(head.unwrap().position, entries.len() as u64, "up to the end");
    let count = |kind| entries.iter().filter(|entry| entry.event.kind == kind).count();
    assert_eq!(count(EventKind::TaskCreated), 1);
    assert_eq!(count(EventKind::ParticipantEnrolled), 3);
    assert_eq!(count(EventKind::RoundCompleted), 1);
    assert_eq!(count(EventKind::VersionPublished), 2);
    let of_round: Vec<_> = entries.iter().filter(|entry| entry.event.round == Some(1)).map(|e| e.event.kind).collect();
    let advanced = EventKind::RoundAdvanced;
    assert_eq!(of_round, [EventKind::RoundOpened, advanced, advanced, EventKind::RoundCompleted]);
    assert_eq!(engine.number_events().await.unwrap(), 0);
    world.set_status(TaskStatus::Active, TaskStatus::Paused).await;
    // The other process has its own signing key here; the chain is continuous.
    assert_eq!(world.engine(2).number_events().await.unwrap(), 1);
    assert_eq!(log(&world).await.0.len(), placed + 1);
}

#[tokio::test]
async fn a_running_engine_places_events_on_wake_ups_alone() {
    let mut world = World::new(3).await;
    world.config.poll_interval = Duration::from_secs(3600);
    let mut wakes = world.store.wake().subscribe();
    let shutdown = CancellationToken::new();
    let engine = world.engine(1);
    let running = tokio::spawn({
        let shutdown = shutdown.clone();
        async move { engine.run(shutdown).await }
    });
    let mut seen = 0;
    for (from, to) in [(TaskStatus::Active, TaskStatus::Paused), (TaskStatus::Paused, TaskStatus::Active)] {
        world.set_status(from, to).await;
        loop {
            while wakes.next().await != Some(WakeEvent::Numbered) {}
            let (entries, _) = log(&world).await;
            if entries.len() > seen && entries.last().unwrap().event.kind != EventKind::RoundOpened {
                seen = entries.len();
            }
            let wanted = if to == TaskStatus::Paused { EventKind::TaskPaused } else { EventKind::TaskResumed };
            if entries.iter().any(|entry| entry.event.kind == wanted) {
                break;
            }
        }
    }
    assert!(seen > 0);
    shutdown.cancel();
    running.await.unwrap();
    // A round may have opened since, and its event is numbered; a held lease would be refused.
    let placed = world.engine(2).number_events().await;
    assert!(placed.is_ok(), "the lease is free again: {placed:?}");
}

#[tokio::test]
async fn two_workers_place_every_event_once() {
    let world = Arc::new(World::new(3).await);
    let engines = [1, 2].map(|seed| world.engine(seed));
    for step in 0..10 {
        let (from, to) = if step % 2 == 0 {
            (TaskStatus::Active, TaskStatus::Paused)
        } else {
            (TaskStatus::Paused, TaskStatus::Active)
        };
        world.set_status(from, to).await;
        let (one, other) = tokio::join!(engines[0].number_events(), engines[1].number_events());
        for placed in [one, other] {
            assert!(matches!(placed, Ok(_) | Err(StepError::LeaseLost(_))), "{placed:?}");
        }
    }
    engines[0].number_events().await.unwrap();
    let (entries, _) = log(&world).await;
    let positions: Vec<_> = entries.iter().map(|entry| entry.position).collect();
    assert_eq!(positions, (1..=entries.len() as u64).collect::<Vec<_>>());
    assert_eq!(entries.iter().filter(|entry| entry.event.kind == EventKind::TaskPaused).count(), 5);
}

#[tokio::test]
async fn a_worker_that_died_is_followed_when_its_lease_has_ended() {
    let world = World::new(3).await;
    let (dead, now, ttl) = (Uuid::from_u128(99), world.clock.now(), Duration::from_secs(5));
    let held =
        world.store.transact("test", |tx| Box::pin(async move { tx.acquire_lease("events", dead, now, ttl).await }));
    let token: Option<u64> = Result::<_, store::StoreError>::unwrap(held.await);
    let engine = world.engine(1);
    assert!(matches!(engine.number_events().await, Err(StepError::LeaseLost(_))));
    assert_eq!(log(&world).await.0.len(), 0);
    world.clock.advance(ttl);
    assert!(engine.number_events().await.unwrap() > 0);
    // The previous holder is fenced: its old token is invalid.
    let renewed = world
        .store
        .transact("test", |tx| Box::pin(async move { tx.renew_lease("events", token.unwrap(), now, ttl).await }));
    assert!(!Result::<_, store::StoreError>::unwrap(renewed.await));
}

#[tokio::test]
async fn a_running_worker_keeps_the_log_for_a_second_beyond_its_last_batch() {
    let world = World::new(3).await;
    let mut wakes = world.store.wake().subscribe();
    let (engine, shutdown) = (world.engine(1), CancellationToken::new());
    let running = tokio::spawn({
        let shutdown = shutdown.clone();
        async move { engine.run(shutdown).await }
    });
    while wakes.next().await != Some(WakeEvent::Numbered) {}
    // The worker's lease uses a stopped clock. It ends without being given up, as at a worker's death.
    let (other, ttl, now) = (Uuid::from_u128(99), Duration::from_secs(1), world.clock.now());
    let taken_at = |now| {
        let store = world.store.clone();
        async move {
            let taken =
                store.transact("test", |tx| Box::pin(async move { tx.acquire_lease("events", other, now, ttl).await }));
            let taken: Result<_, store::StoreError> = taken.await;
            taken.unwrap().is_some()
        }
    };
    assert!(!taken_at(now.plus(ttl - Duration::from_millis(1))).await, "it is held");
    assert!(taken_at(now.plus(ttl)).await, "it is not held for longer");
    shutdown.cancel();
    running.await.unwrap();
}
