//! Cancelling a task during a worker's step prevents its publication.

use std::sync::{Arc, Mutex};

use coordinator::work::{FailPoint, StepError};
use federation::round::RoundState;

use crate::world::World;

/// At one point of a step, an operator cancels the task.
struct Cancelled {
    point: &'static str,
    world: Arc<World>,
    done: Mutex<bool>,
}

impl FailPoint for Cancelled {
    fn reached(&self, point: &'static str) -> Result<(), StepError> {
        if point == self.point && !std::mem::replace(&mut *self.done.lock().unwrap(), true) {
            tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(self.world.cancel()));
        }
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_round_cancelled_in_the_middle_of_a_step_stays_cancelled() {
    for point in [
        "close_phase: before the rows",
        "sum_chunk: before the blob",
        "sum_chunk: after the rows",
        "release_sum: before the blob",
        "release_sum: after the blob",
        "release_sum: after the rows",
        "publish_version: before the blob",
        "publish_version: after the blob",
    ] {
        let world = Arc::new(World::new(5).await);
        let cancelled = Arc::new(Cancelled { point, world: Arc::clone(&world), done: Mutex::new(false) });
        let engine = world.engine_with(1, Arc::clone(&cancelled) as _);
        for _ in 0..10 {
            engine.step_all().await.unwrap();
            match world.pending().await.first() {
                Some(participant) => assert!(world.report(*participant).await),
                None => world.check_in_all().await,
            }
        }
        assert!(*cancelled.done.lock().unwrap(), "{point} was never reached");
        assert_eq!(world.round(1).await.round.state, RoundState::Cancelled, "{point}");
        assert_eq!(world.versions().await.len(), 1, "{point}");
        let key = world.key(1);
        let partial = world.store.read("test", |tx| Box::pin(async move { tx.partial_sum(key.attempt(1)).await }));
        let early = ["close_phase: before the rows", "sum_chunk: before the blob"].contains(&point);
        assert!(!early || partial.await.unwrap().is_none(), "{point}: a sum was stored for an ended round");
        assert_eq!(engine.next_deadline().await.unwrap(), None);
    }
}
