//! Folding while other inputs still arrive.

use federation::round::{FailureReason, RoundState};
use store::entity::partial_sum::PartialSum;

use crate::world::World;

async fn partial(world: &World) -> Option<PartialSum> {
    let key = world.key(1);
    world.store.read("test", |tx| Box::pin(async move { tx.partial_sum(key.attempt(1)).await })).await.unwrap()
}

async fn unfolded(world: &World) -> u32 {
    let key = world.key(1);
    world.store.read("test", |tx| Box::pin(async move { tx.unfolded_count(key.attempt(1)).await })).await.unwrap()
}

#[tokio::test]
async fn inputs_are_folded_as_soon_as_enough_are_there() {
    let world = World::new(6).await;
    let engine = world.engine(1);
    let cohort = world.start_round(&engine).await;
    assert!(world.report(cohort[0]).await);
    engine.step_all().await.unwrap();
    assert_eq!((partial(&world).await, unfolded(&world).await), (None, 1));
    assert!(world.report(cohort[1]).await);
    engine.step_all().await.unwrap();
    let first = partial(&world).await.unwrap();
    assert_eq!((first.inputs, unfolded(&world).await), (2, 0));
    for participant in &cohort[2..5] {
        assert!(world.report(*participant).await);
    }
    engine.step_all().await.unwrap();
    let second = partial(&world).await.unwrap();
    assert_eq!((second.inputs, unfolded(&world).await), (5, 0));
    assert_ne!(first.blob, second.blob);
    assert_eq!(world.round(1).await.round.state, RoundState::Collecting);
}

#[tokio::test]
async fn a_backlog_of_bytes_is_reason_enough() {
    let mut world = World::new(6).await;
    world.config.fold_inputs = 100;
    world.config.fold_bytes = 3 * world.model.packed_len();
    let engine = world.engine(1);
    let cohort = world.start_round(&engine).await;
    for (index, participant) in cohort[..3].iter().enumerate() {
        assert!(partial(&world).await.is_none(), "after {index}");
        assert!(world.report(*participant).await);
        engine.step_all().await.unwrap();
    }
    assert_eq!(partial(&world).await.unwrap().inputs, 3);
}

#[tokio::test]
async fn the_partial_sum_is_the_sum_of_what_it_holds() {
    let world = World::new(4).await;
    let engine = world.engine(1);
    let cohort = world.start_round(&engine).await;
    let mut expected = vec![0_u32; world.model.codec.len()];
    for participant in &cohort[..3] {
        assert!(world.report(*participant).await);
        let input = world.input(*participant, 1);
        let words = secure_agg::packing::unpack(&input, expected.len(), world.model.modulus).unwrap();
        secure_agg::modular::add_assign(&mut expected, &words);
    }
    engine.step_all().await.unwrap();
    let blob = store::BlobStore::get(&*world.blobs, partial(&world).await.unwrap().blob).await.unwrap();
    assert_eq!(blob, secure_agg::packing::pack(&expected, world.model.modulus));
}

#[tokio::test]
async fn another_engine_goes_on_from_the_stored_partial_sum() {
    let alone = World::new(6).await;
    alone.run_round(&alone.engine(1)).await;

    let world = World::new(6).await;
    let cohort = world.start_round(&world.engine(1)).await;
    for (index, pair) in cohort.chunks(2).enumerate() {
        for participant in pair {
            assert!(world.report(*participant).await);
        }
        world.engine(10 + index as u64).step_all().await.unwrap();
    }
    assert_eq!(world.digests().await[1], alone.digests().await[1]);
}

#[tokio::test]
async fn engines_that_take_turns_never_go_on_from_a_sum_of_yesterday() {
    let alone = World::new(8).await;
    alone.run_round(&alone.engine(1)).await;

    let world = World::new(8).await;
    let engines = [world.engine(1), world.engine(2)];
    let cohort = world.start_round(&engines[0]).await;
    for (turn, pair) in cohort.chunks(2).enumerate() {
        for participant in pair {
            assert!(world.report(*participant).await);
        }
        // Both cache a sum; each finds on its turn that the other has stored a newer one.
        engines[turn % 2].step_all().await.unwrap();
    }
    assert_eq!(world.digests().await[1], alone.digests().await[1]);
}

#[tokio::test]
async fn equal_inputs_of_two_participants_both_count() {
    let world = World::new(4).await;
    let engine = world.engine(1);
    let cohort = world.start_round(&engine).await;
    for participant in &cohort {
        assert!(world.upload(*participant, world.input(cohort[0], 1)).await);
        engine.step_all().await.unwrap();
        engine.collect_garbage().await.unwrap();
    }
    let row = world.round(1).await;
    assert_eq!((row.round.state, row.reported), (RoundState::Completed, 4));
}

#[tokio::test]
async fn neither_inputs_nor_sums_are_held_to_be_summed() {
    let world = World::new(4).await;
    let engine = world.engine(1);
    world.start_round(&engine).await;
    let before = world.blobs.held();
    world.report_all().await;
    engine.step_all().await.unwrap();
    assert_eq!(world.round(1).await.round.state, RoundState::Completed);
    // The released sum and the base model, to publish the next one.
    assert_eq!(world.blobs.held() - before, 2);
}

#[tokio::test]
async fn a_damaged_input_ends_the_round_as_input_lost() {
    let world = World::new(4).await;
    let engine = world.engine(1);
    let cohort = world.start_round(&engine).await;
    assert!(world.report(cohort[0]).await);
    assert!(world.report(cohort[1]).await);
    world.blobs.damage(sha256(&world, &world.input(cohort[0], 1)).await);
    engine.step_all().await.unwrap();
    world.assert_failed(1, FailureReason::InputLost).await;
    assert!(partial(&world).await.is_none());
}

#[tokio::test]
async fn a_model_of_several_slices_is_summed_like_one_of_one() {
    let mut whole = World::in_slices(19, 90_000, |_| {}).await;
    whole.config.slice_words = 1 << 20;
    whole.run_round(&whole.engine(1)).await;

    let world = World::in_slices(19, 90_000, |_| {}).await;
    let cohort = world.start_round(&world.engine(1)).await;
    let mut expected = vec![0_u32; world.model.codec.len()];
    for participant in &cohort[..3] {
        assert!(world.report(*participant).await);
        let input = world.input(*participant, 1);
        let words = secure_agg::packing::unpack(&input, expected.len(), world.model.modulus).unwrap();
        secure_agg::modular::add_assign(&mut expected, &words);
    }
    world.engine(2).step_all().await.unwrap();
    let row = partial(&world).await.unwrap();
    let blob = store::BlobStore::get(&*world.blobs, row.blob).await.unwrap();
    assert_eq!(row.inputs, 3);
    assert!(blob == secure_agg::packing::pack(&expected, world.model.modulus));
    // More than the maximum added at once.
    world.report_all().await;
    world.engine(3).step_all().await.unwrap();
    let row = world.round(1).await;
    assert_eq!((row.round.state, row.reported), (RoundState::Completed, 19));
    assert_eq!(world.digests().await, whole.digests().await);
}

#[tokio::test]
async fn a_damaged_input_of_several_slices_ends_the_round_and_leaves_nothing_behind() {
    for folds in [true, false] {
        let mut world = World::in_slices(4, 70_000, |_| {}).await;
        world.config.fold_inputs = if folds { 2 } else { 100 };
        let engine = world.engine(1);
        world.start_round(&engine).await;
        world.report_all().await;
        world.blobs.damage(sha256(&world, &world.input(world.participants[2], 1)).await);
        let before = world.blobs.all().await;
        engine.step_all().await.unwrap();
        world.assert_failed(1, FailureReason::InputLost).await;
        assert!(partial(&world).await.is_none());
        assert_eq!(world.blobs.all().await, before, "folded before: {folds}");
    }
}

#[tokio::test]
async fn a_partial_sum_of_another_length_is_lost() {
    let world = World::in_slices(4, 70_000, |_| {}).await;
    let cohort = world.start_round(&world.engine(1)).await;
    assert!(world.report(cohort[0]).await);
    let short = world.input(cohort[1], 1).slice(..world.input(cohort[1], 1).len() - 1);
    assert!(world.upload(cohort[1], short).await);
    world.engine(2).step_all().await.unwrap();
    world.assert_failed(1, FailureReason::InputLost).await;
}

async fn sha256(world: &World, bytes: &bytes::Bytes) -> federation::id::Digest {
    store::BlobStore::put_bytes(&*world.blobs, bytes.clone()).await.unwrap()
}

#[tokio::test]
async fn a_lost_partial_sum_ends_the_round_as_input_lost() {
    let world = World::new(4).await;
    let cohort = world.start_round(&world.engine(1)).await;
    assert!(world.report(cohort[0]).await);
    assert!(world.report(cohort[1]).await);
    world.engine(2).step_all().await.unwrap();
    let lost = partial(&world).await.unwrap().blob;
    store::BlobStore::delete(&*world.blobs, lost).await.unwrap();
    world.report_all().await;
    world.engine(3).step_all().await.unwrap();
    world.assert_failed(1, FailureReason::InputLost).await;
}

#[tokio::test]
async fn a_failed_attempt_leaves_no_partial_sum_and_the_next_starts_from_nothing() {
    let world = World::new(4).await;
    let engine = world.engine(1);
    let cohort = world.start_round(&engine).await;
    assert!(world.report(cohort[0]).await);
    engine.step_all().await.unwrap();
    for participant in &cohort[1..] {
        world.abandon(*participant).await;
    }
    engine.step_all().await.unwrap();
    world.assert_failed(1, FailureReason::QuorumLost).await;
    world.clock.advance(std::time::Duration::from_secs(1));
    world.run_round(&engine).await;
    let row = world.round(1).await;
    assert_eq!((row.round.key.attempt, row.round.state, row.reported), (2, RoundState::Completed, 4));
}
