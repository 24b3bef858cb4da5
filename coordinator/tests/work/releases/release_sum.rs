//! The released sum: exactly the admitted inputs, once.

use federation::round::{FailureReason, RoundState};
use learning::NoisedSum;
use store::BlobStore as _;
use store::entity::noised_sum::NoisedSumRow;

use crate::world::{DEADLINE, DieAt, World};

async fn noised(world: &World) -> Option<NoisedSumRow> {
    let key = world.key(1);
    world.store.read("test", |tx| Box::pin(async move { tx.noised_sum(key.attempt(1)).await })).await.unwrap()
}

/// A world whose round 1 is released but not published: its engine died right after.
async fn released() -> World {
    let world = World::new(3).await;
    let engine = world.engine(1);
    world.start_round(&engine).await;
    world.report_all().await;
    let mut n = 0;
    while noised(&world).await.is_none() {
        let _ = world.engine_with(2, DieAt::nth(n)).step_all().await;
        world.clock.advance(crate::world::LEASE_TTL);
        n += 1;
    }
    assert_eq!(world.round(1).await.round.state, RoundState::Aggregating);
    world
}

#[tokio::test]
async fn the_sum_holds_every_admitted_input_once() {
    let world = released().await;
    let row = noised(&world).await.unwrap();
    assert_eq!(row.participants, 3);
    let mut expected = vec![0_u32; world.model.codec.len()];
    for participant in &world.participants {
        let input = world.input(*participant, 1);
        let words = secure_agg::packing::unpack(&input, expected.len(), world.model.modulus).unwrap();
        secure_agg::modular::add_assign(&mut expected, &words);
    }
    let sum = NoisedSum::from_bytes(&world.blobs.get(row.blob).await.unwrap()).unwrap();
    assert_eq!(sum.words(), expected);
}

#[tokio::test]
async fn once_released_neither_inputs_nor_partial_sum_are_needed() {
    let world = released().await;
    let key = world.key(1);
    let (partial, unfolded) = world
        .store
        .read("test", |tx| {
            Box::pin(async move {
                Ok::<_, store::StoreError>((
                    tx.partial_sum(key.attempt(1)).await?,
                    tx.unfolded_count(key.attempt(1)).await?,
                ))
            })
        })
        .await
        .unwrap();
    assert_eq!((partial, unfolded), (None, 0));
    for participant in &world.participants {
        let input = world.blobs.put_bytes(world.input(*participant, 1)).await.unwrap();
        world.blobs.delete(input).await.unwrap();
    }
    world.engine(3).step_all().await.unwrap();
    assert_eq!(world.round(1).await.round.state, RoundState::Completed);
}

#[tokio::test]
async fn a_lost_released_sum_ends_the_round_as_input_lost() {
    let world = released().await;
    world.blobs.delete(noised(&world).await.unwrap().blob).await.unwrap();
    world.engine(3).step_all().await.unwrap();
    world.assert_failed(1, FailureReason::InputLost).await;
}

#[tokio::test]
async fn aggregation_that_takes_too_long_fails_the_round() {
    let world = released().await;
    world.clock.advance(DEADLINE);
    world.engine(3).step_all().await.unwrap();
    world.assert_failed(1, FailureReason::AggregationTimedOut).await;
}
