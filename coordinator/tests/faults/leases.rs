//! Two engines on one store, and leases lost during a step.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use coordinator::work::{Engine, FailPoint, StepError};
use federation::round::RoundState;
use federation::task_status::TaskStatus;
use tokio_util::sync::CancellationToken;

use crate::world::faulty_blobs::Fault;
use crate::world::{DieAt, LEASE_TTL, World};

/// How often tasks' leases were lost or refused so far.
fn counted(metrics: &str, what: &str) -> u64 {
    let name = format!("tributary_leases_{what}_total{{work=\"task\"}} ");
    let line = metrics.lines().find_map(|line| line.strip_prefix(&*name));
    line.map_or(0, |count| count.parse().unwrap())
}

#[tokio::test]
async fn two_engines_on_one_store_publish_each_version_once() {
    let alone = World::new(6).await;
    for _ in 0..3 {
        alone.run_round(&alone.engine(1)).await;
    }
    let mut world = World::new(6).await;
    world.config.poll_interval = Duration::from_millis(2);
    let shutdown = CancellationToken::new();
    let engines: Vec<_> = (1..=2)
        .map(|seed| {
            let (engine, shutdown) = (world.engine(seed), shutdown.clone());
            tokio::spawn(async move { engine.run(shutdown).await })
        })
        .collect();
    while world.task_row().await.status != TaskStatus::Completed {
        match world.pending().await.first() {
            Some(participant) => drop(world.report(*participant).await),
            None => world.check_in_all().await,
        }
        tokio::task::yield_now().await;
    }
    shutdown.cancel();
    for engine in engines {
        engine.await.unwrap();
    }
    assert_eq!(world.digests().await, alone.digests().await);
    for number in 1..=3 {
        let row = world.round(number).await;
        assert_eq!((row.round.key.attempt, row.round.state, row.reported), (1, RoundState::Completed, 6));
    }
}

#[tokio::test]
async fn a_task_that_somebody_else_holds_is_left_alone_until_the_lease_expires() {
    let metrics = coordinator::observe::recorder();
    let world = World::new(3).await;
    let engine = world.engine(1);
    world.hold_lease(LEASE_TTL).await;
    let refused = counted(&metrics.render(), "refused");
    assert_eq!(engine.step_all().await.unwrap(), 0);
    world.clock.advance(LEASE_TTL - Duration::from_millis(1));
    assert_eq!(engine.step_all().await.unwrap(), 0);
    // Concurrent tests of this process may be refused leases, too.
    assert!(counted(&metrics.render(), "refused") >= refused + 2);
    world.clock.advance(Duration::from_millis(1));
    assert_eq!(engine.step_all().await.unwrap(), 1);
}

/// At one point of a step, time passes and another engine does all possible work.
struct Overtaken {
    point: &'static str,
    world: Arc<World>,
    other: Engine,
    done: Mutex<bool>,
}

impl FailPoint for Overtaken {
    fn reached(&self, point: &'static str) -> Result<(), StepError> {
        if point == self.point && !std::mem::replace(&mut *self.done.lock().unwrap(), true) {
            self.world.clock.advance(LEASE_TTL);
            let other = self.other.clone();
            tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(other.step_all()))?;
        }
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_was_overtaken_in_the_middle_of_a_step_writes_nothing() {
    let alone = World::new(5).await;
    alone.run_round(&alone.engine(1)).await;
    for point in [
        "open_round: before the row",
        "close_phase: before the rows",
        "sum_chunk: before the blob",
        "sum_chunk: after the blob",
        "release_sum: before the blob",
        "release_sum: after the blob",
        "publish_version: before the blob",
        "publish_version: after the blob",
    ] {
        let world = Arc::new(World::new(5).await);
        let overtaken =
            Arc::new(Overtaken { point, world: Arc::clone(&world), other: world.engine(2), done: Mutex::new(false) });
        let engine = world.engine_with(1, Arc::clone(&overtaken) as _);
        while world.task_row().await.rounds_completed == 0 {
            // An overtaken step may find all work done.
            match engine.step_all().await {
                Ok(_) | Err(StepError::LeaseLost(_)) => {}
                Err(error) => panic!("{point}: {error}"),
            }
            match world.pending().await.first() {
                Some(participant) => assert!(world.report(*participant).await),
                None => world.check_in_all().await,
            }
        }
        assert!(*overtaken.done.lock().unwrap(), "{point} was never reached");
        assert_eq!(world.digests().await[..2], alone.digests().await[..2], "{point}");
    }
}

/// At one point of a step, the lease expires; another process takes it and releases it without working.
struct Fenced {
    point: &'static str,
    world: Arc<World>,
    times: Mutex<u32>,
}

impl FailPoint for Fenced {
    fn reached(&self, point: &'static str) -> Result<(), StepError> {
        if point == self.point {
            *self.times.lock().unwrap() += 1;
            self.world.clock.advance(LEASE_TTL);
            let passing = async {
                let token = self.world.hold_lease(LEASE_TTL).await;
                self.world.release_lease(token).await;
            };
            tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(passing));
        }
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_lost_its_lease_writes_nothing_even_if_it_is_free_again() {
    let metrics = coordinator::observe::recorder();
    // Inputs are folded while others are awaited.
    for (point, awaited) in
        [("sum_chunk: after the blob", 1), ("release_sum: after the blob", 0), ("publish_version: after the blob", 0)]
    {
        let world = Arc::new(World::new(5).await);
        let engine = world.engine(1);
        let cohort = world.start_round(&engine).await;
        for participant in &cohort[awaited..] {
            assert!(world.report(*participant).await);
        }
        let fenced = Arc::new(Fenced { point, world: Arc::clone(&world), times: Mutex::default() });
        let worker = world.engine_with(2, Arc::clone(&fenced) as _);
        let before = world.folded().await;
        let lost_before = counted(&metrics.render(), "lost");
        for _ in 0..3 {
            worker.step_all().await.unwrap();
        }
        assert_eq!(*fenced.times.lock().unwrap(), 3, "{point}");
        // Concurrent tests of this process may lose leases, too.
        assert!(counted(&metrics.render(), "lost") >= lost_before + 3, "{point}");
        assert_eq!(world.versions().await.len(), 1, "{point}");
        assert!(awaited == 0 || world.folded().await == before, "{point}");
        world.report(cohort[0]).await;
        engine.step_all().await.unwrap();
        assert_eq!(world.versions().await.len(), 2, "{point}");
    }
}

#[tokio::test]
async fn a_lease_lost_mid_step_leaves_the_step_to_its_new_holder() {
    let world = World::new(3).await;
    let engine = world.engine(1);
    world.start_round(&engine).await;
    world.report_all().await;
    // The holder dies with the lease; another process takes it after its expiry, and waits.
    let mut n = 0;
    while world.round(1).await.round.state != RoundState::Aggregating {
        let _ = world.engine_with(2, DieAt::nth(n)).step_all().await;
        world.clock.advance(LEASE_TTL);
        n += 1;
    }
    world.hold_lease(LEASE_TTL).await;
    assert_eq!(engine.step_all().await.unwrap(), 0);
    assert_eq!(world.versions().await.len(), 1);
    world.clock.advance(LEASE_TTL);
    engine.step_all().await.unwrap();
    assert_eq!(world.versions().await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_kept_while_what_a_step_stores_takes_longer_than_a_lease() {
    let world = World::new(3).await;
    let (engine, other) = (world.engine(1), world.engine(2));
    world.start_round(&engine).await;
    world.report_all().await;
    world.blobs.set(Fault::Slow(3 * LEASE_TTL));
    let step = tokio::spawn(async move { engine.step_all().await });
    while !step.is_finished() {
        tokio::time::sleep(LEASE_TTL / 8).await;
        world.clock.advance(LEASE_TTL / 8);
        assert_eq!(other.step_all().await.unwrap(), 0, "another works on it");
    }
    step.await.unwrap().unwrap();
    assert_eq!(world.versions().await.len(), 2);
}
