//! Coordinators on one database with machine clocks hours apart: rounds and leases use the database's clock.

use std::sync::Arc;
use std::time::Duration;

use coordinator::config::Config;
use coordinator::random::Random;
use coordinator::{Coordinator, Parts};
use federation::id::RoundKey;
use federation::round::RoundState;
use federation::time::{MockClock, Timestamp};
use store::Store;
use test_servers::postgres::Cluster;
use uuid::Uuid;

use crate::support::{TestCoordinator, config, small_task};

const HOUR: Duration = Duration::from_secs(3600);
/// Less than the clocks' difference, and more than a database response takes.
const TOLERANCE: Duration = Duration::from_secs(600);

fn earlier(than: Timestamp, by: Duration) -> Timestamp {
    Timestamp(than.0 - i64::try_from(by.as_millis()).unwrap())
}

fn on(url: &str) -> Config {
    let mut config = config();
    config.database.url = url.to_owned();
    config
}

/// A coordinator on another machine with this clock.
async fn beside(url: &str, clock: Timestamp, seed: u64) -> Coordinator {
    let parts = Parts { clock: Arc::new(MockClock::new(clock)), random: Random::from_seed(seed) };
    Coordinator::assemble(&on(url), parts).await.unwrap()
}

async fn acquire(store: &Store, name: &str, holder: u128, now: Timestamp, ttl: Duration) -> bool {
    let acquired = store.transact("test", |tx| {
        Box::pin(async move { tx.acquire_lease(name, Uuid::from_u128(holder), now, ttl).await })
    });
    acquired.await.unwrap().is_some()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_whose_clock_is_hours_off_neither_takes_a_lease_nor_keeps_one() {
    let Some(cluster) = Cluster::shared() else { return };
    let url = cluster.url(&cluster.create_database());
    let right = beside(&url, Timestamp(0), 1).await;
    let now = right.now();
    let ahead = beside(&url, now.plus(HOUR), 2).await;
    let behind = beside(&url, earlier(now, HOUR), 3).await;
    for (name, holder, other) in
        [("a", &right, &ahead), ("b", &right, &behind), ("c", &ahead, &behind), ("d", &behind, &ahead)]
    {
        assert!(acquire(&holder.store, name, 1, holder.now(), TOLERANCE).await);
        assert!(!acquire(&other.store, name, 2, other.now(), TOLERANCE).await, "{name} is held");
        let later = other.now().plus(2 * TOLERANCE);
        assert!(acquire(&other.store, name, 2, later, TOLERANCE).await, "{name} has ended");
    }
    for coordinator in [right, ahead, behind] {
        coordinator.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_whose_clock_is_hours_off_ends_no_phase_of_another() {
    let Some(cluster) = Cluster::shared() else { return };
    let url = cluster.url(&cluster.create_database());
    let t = TestCoordinator::with(&on(&url)).await;
    t.create_task(&small_task()).await;
    t.work().await;
    let round = |number: u32| {
        let t = &t;
        async move { t.get(&t.viewer, &format!("/v1/tasks/small/rounds/{number}")).await.json() }
    };
    let opened = round(1).await;
    assert_eq!(opened["state"], RoundState::Selecting.to_string());
    for (seed, clock) in [(2, t.inner.now().plus(3 * HOUR)), (3, earlier(t.inner.now(), 3 * HOUR))] {
        let other = beside(&url, clock, seed).await;
        other.engine.step_all().await.unwrap();
        other.stop().await;
        let now = round(1).await;
        assert_eq!((&now["state"], &now["attempt"]), (&opened["state"], &opened["attempt"]), "{now}");
    }
    t.inner.stop().await;
}

/// This process's time stops, as on a suspended machine, while the database's continues.
async fn suspended(time: Duration) {
    tokio::time::pause();
    std::thread::sleep(time);
    tokio::time::resume();
}

#[tokio::test]
async fn a_process_that_was_suspended_ends_no_phase_and_takes_no_lease_that_began_meanwhile() {
    let Some(cluster) = Cluster::shared() else { return };
    let url = cluster.url(&cluster.create_database());
    let late = beside(&url, Timestamp(0), 1).await;
    suspended(Duration::from_secs(3)).await;
    let t = TestCoordinator::with(&on(&url)).await;
    let task = t.create_task(&small_task()).await;
    t.work().await;
    let since = async || {
        let round = RoundKey { task, number: 1 };
        late.store.read("test", |tx| Box::pin(async move { tx.round(round).await })).await.unwrap().unwrap().round
    };
    let opened = since().await;
    assert!(late.now().0 < opened.state_since.0, "its clock is late");
    for _ in 0..2 {
        let _ = late.engine.step_all().await;
        assert_eq!(since().await, opened);
    }
    assert!(late.now() >= opened.state_since, "it has set its clock");
    late.stop().await;
    t.inner.stop().await;
}
