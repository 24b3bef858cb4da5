//! Published versions: correct, repeatable, and independent of the order of arrival.

use std::sync::Arc;

use federation::round::{FailureReason, RoundState};
use federation::task_status::TaskStatus;
use federation::time::Clock as _;
use futures_util::FutureExt as _;
use learning::{MeanUpdate, MetricValue, OptimizerState, Update, checkpoint, optimizer};
use rand::SeedableRng as _;
use rand::seq::SliceRandom as _;
use rand_chacha::ChaCha20Rng;
use store::{BlobStore as _, WakeEvent};
use task_spec::{Better, GateSpec, KeepBest, Retain, ServerOptimizer};

use crate::world::World;

mod analysis;
mod compressed;
mod solver;

#[tokio::test]
async fn the_version_is_the_base_plus_the_weighted_mean() {
    let world = World::new(3).await;
    world.run_round(&world.engine(1)).await;
    let versions = world.versions().await;
    let read = |bytes: &[u8]| checkpoint::read(bytes, &world.model.tensors.shared).unwrap();
    let base = read(&world.blobs.get(versions[0].sha256).await.unwrap());
    let published = read(&world.blobs.get(versions[1].sha256).await.unwrap());

    let mut expected = base.clone();
    let mean = mean(&world, 1);
    optimizer::step(&world.model.optimizer, Default::default(), &mut expected, &mean).unwrap();
    assert_eq!(published, expected);
    assert_ne!(published, base);

    let row = world.round(1).await;
    let told: Vec<_> = row.metrics.iter().map(|metric| (metric.name.as_str(), metric.value, metric.count)).collect();
    assert_eq!(
        told,
        [("loss", mean.metrics[0].value, 30), ("accuracy", mean.metrics[1].value, 30)],
        "weighted means, by name"
    );
    assert_eq!((row.model_version, row.round.state), (Some(1), RoundState::Completed));
    assert_eq!((versions[1].round, versions[1].parent), (Some(1), Some(0)));
    assert_eq!(versions[1].bytes, world.blobs.len(versions[1].sha256).await.unwrap().unwrap());
}

#[tokio::test]
async fn an_optimizer_goes_on_from_what_it_left_beside_the_base() {
    let (learning_rate, beta1, beta2, tau) = (0.1, 0.9, 0.99, 1e-3);
    for optimizer in [
        ServerOptimizer::FedAvg { learning_rate },
        ServerOptimizer::FedAvgM { learning_rate, momentum: 0.5 },
        ServerOptimizer::FedAdagrad { learning_rate, beta1, tau },
        ServerOptimizer::FedAdam { learning_rate, beta1, beta2, tau },
        ServerOptimizer::FedYogi { learning_rate, beta1, beta2, tau },
    ] {
        let world = World::with(3, |spec| spec.aggregation.optimizer = optimizer).await;
        let (mut model, mut state) = (world.model.initial(&world.spec).unwrap(), OptimizerState::Empty);
        for number in 1..=3 {
            // Another engine each time: all state is in rows and blobs.
            world.run_round(&world.engine(number.into())).await;
            state = optimizer::step(&world.model.optimizer, state, &mut model, &mean(&world, number)).unwrap();
            let version = world.versions().await.pop().unwrap();
            assert_eq!(world.blobs.get(version.sha256).await.unwrap(), checkpoint::write(&model).unwrap());
            let kept = match version.optimizer_state {
                Some(blob) => Some(world.blobs.get(blob).await.unwrap().to_vec()),
                None => None,
            };
            assert_eq!(kept, optimizer::write_state(&state, &world.model.tensors.shared).unwrap(), "{optimizer:?}");
            assert_eq!(kept.is_some(), world.model.optimizer.remembers());
        }
    }
}

#[tokio::test]
async fn a_lost_optimizer_state_keeps_the_round_until_its_deadline() {
    let world = World::with(3, |spec| {
        spec.aggregation.optimizer = ServerOptimizer::FedAvgM { learning_rate: 1.0, momentum: 0.9 };
    })
    .await;
    let engine = world.engine(1);
    world.run_round(&engine).await;
    world.start_round(&engine).await;
    world.report_all().await;
    let state = world.versions().await[1].optimizer_state.unwrap();
    let bytes = world.blobs.get(state).await.unwrap();
    world.blobs.delete(state).await.unwrap();
    assert!(engine.step_all().await.is_err());
    assert_eq!(world.round(2).await.round.state, RoundState::Aggregating);
    world.blobs.put_bytes(bytes).await.unwrap();
    engine.step_all().await.unwrap();
    assert_eq!(world.round(2).await.round.state, RoundState::Completed);
}

#[tokio::test]
async fn a_version_of_several_slices_is_that_of_the_whole_and_nothing_is_held_to_make_it() {
    let adam = ServerOptimizer::FedAdam { learning_rate: 0.1, beta1: 0.9, beta2: 0.99, tau: 1e-3 };
    for optimizer in [ServerOptimizer::default(), adam] {
        let made = async |slice_words: usize| {
            let mut world = World::in_slices(3, 300_000, |spec| spec.aggregation.optimizer = optimizer).await;
            world.config.slice_words = slice_words;
            let before = world.blobs.held();
            for number in 1..=2 {
                world.run_round(&world.engine(number)).await;
            }
            let versions = world.versions().await;
            let of = versions.iter().map(|version| (version.sha256, version.bytes, version.optimizer_state));
            (of.collect::<Vec<_>>(), world.blobs.held() - before)
        };
        let (whole, in_slices) = (made(1 << 20).await, made(1).await);
        assert_eq!(whole.0, in_slices.0, "{optimizer:?}");
        assert!(whole.1 > 0 && in_slices.1 == 0, "{optimizer:?}: {} and {} blobs", whole.1, in_slices.1);
    }
}

#[tokio::test]
async fn a_damaged_base_of_several_slices_keeps_the_round_until_it_is_mended() {
    let world = World::in_slices(3, 70_000, |_| {}).await;
    let engine = world.engine(1);
    world.start_round(&engine).await;
    world.report_all().await;
    let base = world.versions().await[0].sha256;
    world.blobs.damage(base);
    assert!(engine.step_all().await.is_err());
    assert_eq!(world.round(1).await.round.state, RoundState::Aggregating);
    world.blobs.mend(base);
    engine.step_all().await.unwrap();
    assert_eq!(world.round(1).await.round.state, RoundState::Completed);
}

/// The mean of a round without dropouts.
fn mean(world: &World, number: u32) -> MeanUpdate {
    let words = world.model.codec.len();
    let mut sum = vec![0_u32; words];
    for participant in &world.participants {
        let input = world.input(*participant, number);
        let input = secure_agg::packing::unpack(&input, words, world.model.modulus).unwrap();
        secure_agg::modular::add_assign(&mut sum, &input);
    }
    let participants = u32::try_from(world.participants.len()).unwrap();
    let sum = learning::ExactSum::new(sum, world.model.modulus.bits(), participants).unwrap();
    world.model.codec.plain().unwrap().decode(&sum.release_without_noise()).unwrap()
}

#[tokio::test]
async fn order_of_arrival_does_not_change_the_sha256_of_the_published_version() {
    let in_order = World::new(7).await;
    in_order.run_round(&in_order.engine(1)).await;
    let expected = in_order.digests().await[1];
    for seed in 0..12 {
        let mut world = World::new(7).await;
        // Chunks of different sizes, and steps at different moments.
        world.config.fold_inputs = 1 + seed % 4;
        let engine = world.engine(seed.into());
        let mut cohort = world.start_round(&engine).await;
        let mut rng = ChaCha20Rng::seed_from_u64(seed.into());
        cohort.shuffle(&mut rng);
        for (index, participant) in cohort.iter().enumerate() {
            assert!(world.report(*participant).await);
            if index % (1 + seed as usize % 3) == 0 {
                engine.step_all().await.unwrap();
            }
        }
        engine.step_all().await.unwrap();
        assert_eq!(world.digests().await[1], expected, "order {seed}");
    }
}

#[tokio::test]
async fn the_task_completes_with_its_last_round_and_says_so() {
    let world = World::new(3).await;
    let engine = world.engine(1);
    let mut wakes = world.store.wake().subscribe();
    for _ in 0..2 {
        world.run_round(&engine).await;
    }
    // Separate from other wake-ups: otherwise all waiting participants would wake once per round.
    while let Some(event) = wakes.next().now_or_never().flatten() {
        assert_ne!(event, WakeEvent::Task(world.task));
    }
    world.run_round(&engine).await;
    let task = world.task_row().await;
    assert_eq!((task.status, task.rounds_completed, task.model_version), (TaskStatus::Completed, 3, 3));
    assert_eq!(world.versions().await.len(), 4);
    let mut heard = Vec::new();
    while heard.last() != Some(&WakeEvent::Task(world.task)) {
        heard.push(wakes.next().await.unwrap());
    }
    assert!(heard.contains(&WakeEvent::Round(world.key(3))));
    assert_eq!(engine.step_all().await.unwrap(), 0);
    assert_eq!(engine.next_deadline().await.unwrap(), None);
}

#[tokio::test]
async fn a_paused_task_completes_with_its_last_round_too() {
    let world = World::with(3, |spec| spec.rounds.count = 1).await;
    let engine = world.engine(1);
    world.start_round(&engine).await;
    world.set_status(TaskStatus::Active, TaskStatus::Paused).await;
    world.report_all().await;
    engine.step_all().await.unwrap();
    assert_eq!(world.task_row().await.status, TaskStatus::Completed);
}

#[tokio::test]
async fn a_sum_that_nobody_honest_could_have_made_is_not_published() {
    let world = World::new(3).await;
    let engine = world.engine(1);
    let cohort = world.start_round(&engine).await;
    assert!(world.report(cohort[0]).await);
    assert!(world.report(cohort[1]).await);
    // As long as an input, but with values beyond any weight.
    let words = vec![0x4000_0000_u32; world.model.codec.len()];
    let input = secure_agg::packing::pack(&words, world.model.modulus);
    assert!(world.upload(cohort[2], input.into()).await);
    engine.step_all().await.unwrap();
    world.assert_failed(1, FailureReason::GarbageSum).await;
    assert_eq!(world.versions().await.len(), 1);
}

#[tokio::test]
async fn tensors_that_stay_at_home_are_not_in_the_published_model() {
    let world = World::with(3, |spec| spec.model.personal = vec!["b".into()]).await;
    world.run_round(&world.engine(1)).await;
    let version = world.versions().await[1].clone();
    let layout = checkpoint::read_layout(&world.blobs.get(version.sha256).await.unwrap()).unwrap();
    assert_eq!(layout, *Arc::clone(&world.model.tensors.shared));
    assert!(layout.find("b").is_none() && layout.find("w").is_some());
}

#[tokio::test]
async fn a_lost_base_model_keeps_the_round_until_its_deadline() {
    let world = World::new(3).await;
    let engine = world.engine(1);
    world.start_round(&engine).await;
    world.report_all().await;
    let base = world.versions().await[0].sha256;
    let bytes = world.blobs.get(base).await.unwrap();
    world.blobs.delete(base).await.unwrap();
    assert!(engine.step_all().await.is_err());
    assert_eq!(world.round(1).await.round.state, RoundState::Aggregating);
    world.blobs.put_bytes(bytes).await.unwrap();
    engine.step_all().await.unwrap();
    assert_eq!(world.round(1).await.round.state, RoundState::Completed);
}

/// Reports this accuracy of the received model for all participants.
async fn report_accuracy(world: &World, value: f64) {
    let codec = *world.model.codec.plain().unwrap();
    for &id in &world.participants {
        let accuracy = MetricValue { value, count: 10 };
        let delta = vec![0.25; codec.params().parameters];
        let update = Update { delta, examples: 10, metrics: vec![MetricValue::default(), accuracy] };
        let words = codec.encode(&update, &mut ChaCha20Rng::seed_from_u64(7)).unwrap().words;
        assert!(world.upload(id, secure_agg::packing::pack(&words, world.model.modulus).into()).await);
    }
}

#[tokio::test]
async fn a_version_that_made_a_metric_fall_is_rolled_back_with_what_the_optimizer_remembered() {
    let momentum = ServerOptimizer::FedAvgM { learning_rate: 1.0, momentum: 0.5 };
    for (optimizer, retain) in [
        (ServerOptimizer::default(), None),
        (momentum, None),
        // A version needed by a rollback stays, even with a minimal retention.
        (ServerOptimizer::default(), Some(Retain { last: 1 })),
        (momentum, Some(Retain { last: 1 })),
    ] {
        let world = World::with(3, |spec| {
            spec.rounds.count = 6;
            spec.retain = retain;
            spec.aggregation.optimizer = optimizer;
            spec.aggregation.gate =
                Some(GateSpec { metric: "accuracy".into(), max_fall: 0.05, better: Better::Higher });
        })
        .await;
        // Version 1 falls by 0.4, so version 2 is version 0 again; version 4 falls, so version 5 is version 3 again.
        for accuracy in [0.5, 0.1, 0.5, 0.6, 0.4, 0.6] {
            let engine = world.engine(1);
            world.start_round(&engine).await;
            report_accuracy(&world, accuracy).await;
            engine.step_all().await.unwrap();
            world.clock.advance(std::time::Duration::from_millis(1));
            engine.collect_all_garbage().await.unwrap();
        }
        let versions = world.versions().await;
        let parents: Vec<_> = versions.iter().map(|version| version.parent).collect();
        assert_eq!(parents, [None, Some(0), Some(0), Some(2), Some(3), Some(3), Some(5)]);
        let of = |version: usize| (versions[version].sha256, versions[version].optimizer_state);
        assert_eq!((of(2), of(5)), (of(0), of(3)));
        assert_eq!((of(3), of(6)), (of(1), of(4)), "the same step from the same model gives the same");
        assert_eq!(versions.last().unwrap().version, 6, "every round has its version all the same");
    }
}

/// A task that keeps the best version, stops two rounds after it, and removes other versions.
async fn keeping_best() -> World {
    World::with(3, |spec| {
        spec.rounds.count = 10;
        spec.rounds.keep_best = Some(KeepBest { metric: "accuracy".into(), better: Better::Higher });
        spec.rounds.stop_after = Some(2);
        spec.retain = Some(Retain { last: 1 });
    })
    .await
}

/// Runs a round whose cohort reports this accuracy of its base version. Returns the promoted version.
async fn round_of(world: &World, accuracy: f64) -> Option<u32> {
    let engine = world.engine(1);
    world.start_round(&engine).await;
    report_accuracy(world, accuracy).await;
    engine.step_all().await.unwrap();
    world.clock.advance(std::time::Duration::from_millis(1));
    engine.collect_all_garbage().await.unwrap();
    world.task_row().await.promoted_version
}

#[tokio::test]
async fn best_version_is_promoted_and_the_task_ends_without_gain() {
    let world = keeping_best().await;
    for (accuracy, promoted) in [(0.5, 0), (0.4, 0), (0.7, 2), (0.7, 2)] {
        assert_eq!(round_of(&world, accuracy).await, Some(promoted), "after {accuracy}");
        assert_eq!(world.task_row().await.status, TaskStatus::Active);
    }
    assert_eq!(round_of(&world, 0.6).await, Some(2));
    let task = world.task_row().await;
    assert_eq!((task.status, task.rounds_completed, task.model_version), (TaskStatus::Completed, 5, 5));
    let id = world.task;
    let history = world.store.read("history", |tx| Box::pin(tx.task_history(id))).await.unwrap();
    let detail = history.last().and_then(|change| change.detail.as_deref());
    assert_eq!(detail, Some("stop_after = 2 is reached: version 2 has the best accuracy"));
    // The best and the newest version are kept.
    for version in world.versions().await {
        let is_kept = world.blobs.len(version.sha256).await.unwrap().is_some();
        assert_eq!(is_kept, [2, 5].contains(&version.version), "version {}", version.version);
    }
}

#[tokio::test]
async fn version_that_an_operator_promoted_stays() {
    let world = keeping_best().await;
    assert_eq!(round_of(&world, 0.5).await, Some(0));
    let (task, now) = (world.task, world.clock.now());
    world.store.transact("promote", |tx| Box::pin(tx.promote_version(task, 1, now))).await.unwrap();
    assert_eq!(round_of(&world, 0.4).await, Some(1));
    // Version 2 is the best, and version 1 is not the one that was the best before.
    assert_eq!(round_of(&world, 0.9).await, Some(1));
}
