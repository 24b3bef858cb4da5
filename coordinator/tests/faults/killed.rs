//! Workers dying between any two writes: the next worker finishes with the same bytes.

use std::sync::Arc;

use coordinator::work::{Engine, StepError};
use federation::id::Digest;
use federation::task_status::TaskStatus;
use task_spec::ServerOptimizer;

use crate::world::{DieAt, LEASE_TTL, World};

/// Runs the task to its end. Whenever an engine dies, another takes over once the lease has expired.
async fn run(world: &World, mut engine: Engine) -> (Vec<Digest>, usize) {
    let mut deaths = 0;
    for pass in 0..200 {
        match engine.step_all().await {
            Ok(_) => {}
            Err(StepError::Stopped(_)) => {
                deaths += 1;
                engine = world.engine(1_000 + pass);
                world.clock.advance(LEASE_TTL);
                continue;
            }
            Err(error) => panic!("{error}"),
        }
        if world.task_row().await.status == TaskStatus::Completed {
            return (world.digests().await, deaths);
        }
        let pending = world.pending().await;
        match pending.first() {
            // One at a time, so that inputs are folded while others still arrive.
            Some(participant) => assert!(world.report(*participant).await),
            None => world.check_in_all().await,
        }
    }
    panic!("the task does not come to an end");
}

async fn world() -> World {
    World::with(5, |spec| {
        spec.rounds.count = 2;
        // The second step continues from the first one's state.
        let (learning_rate, beta1, beta2, tau) = (0.1, 0.9, 0.99, 1e-3);
        spec.aggregation.optimizer = ServerOptimizer::FedAdam { learning_rate, beta1, beta2, tau };
    })
    .await
}

#[tokio::test]
async fn killed_between_any_two_writes_the_same_versions_are_published() {
    let calm = world().await;
    let counter = DieAt::never();
    let (expected, _) = run(&calm, calm.engine_with(1, Arc::clone(&counter) as _)).await;
    let reached = counter.reached.lock().unwrap().clone();
    for point in [
        "open_round: before the row",
        "open_round: after the row",
        "close_phase: before the rows",
        "close_phase: after the rows",
        "sum_chunk: before the blob",
        "sum_chunk: after the blob",
        "sum_chunk: after the rows",
        "release_sum: before the blob",
        "release_sum: after the blob",
        "release_sum: after the rows",
        "publish_version: before the blob",
        "publish_version: after the optimizer's state",
        "publish_version: after the blob",
        "publish_version: after the rows",
    ] {
        assert!(reached.contains_key(point), "{point} was never reached: {reached:?}");
    }
    let points: usize = reached.values().sum();
    for n in 0..points {
        let world = world().await;
        let (digests, deaths) = run(&world, world.engine_with(1, DieAt::nth(n))).await;
        assert_eq!((digests, deaths), (expected.clone(), 1), "killed at point {n}");
        assert_each_input_counts_once(&world).await;
    }
}

#[tokio::test]
async fn a_worker_that_dies_after_every_few_points_still_comes_to_the_same_end() {
    let calm = world().await;
    let (expected, _) = run(&calm, calm.engine(1)).await;
    for lifetime in 1..6 {
        let world = world().await;
        let mut deaths = 0;
        for pass in 0..500 {
            // Every life gets at least one step beyond the repeated ones.
            let engine = world.engine_with(pass, DieAt::nth(3 + lifetime));
            match engine.step_all().await {
                Err(StepError::Stopped(_)) => deaths += 1,
                result => drop(result.unwrap()),
            }
            if world.task_row().await.status == TaskStatus::Completed {
                break;
            }
            world.clock.advance(LEASE_TTL);
            match world.pending().await.first() {
                Some(participant) => assert!(world.report(*participant).await),
                None => world.check_in_all().await,
            }
        }
        assert_eq!(world.digests().await, expected, "lifetime {lifetime}");
        assert!(deaths > 0 || lifetime > 1, "nobody died");
    }
}

async fn assert_each_input_counts_once(world: &World) {
    for number in 1..=2 {
        let row = world.round(number).await;
        let attempt = row.round.key;
        let (sum, unfolded) = world
            .store
            .read("test", |tx| {
                Box::pin(async move {
                    let sum = tx.noised_sum(attempt).await?;
                    Ok::<_, store::StoreError>((sum, tx.unfolded_count(attempt).await?))
                })
            })
            .await
            .unwrap();
        assert_eq!((sum.unwrap().participants, unfolded, row.reported), (5, 0, 5));
    }
}
