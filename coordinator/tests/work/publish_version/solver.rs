//! FedNova and SCAFFOLD: versions beyond a simple mean, with persistent solver state.

use bytes::Bytes;
use federation::round::FailureReason;
use learning::{MetricValue, Parameters, Update, Upload, checkpoint};
use rand::SeedableRng as _;
use rand_chacha::ChaCha20Rng;
use recipe::UpdateCodec;
use store::BlobStore as _;
use task_spec::{ServerOptimizer, Solver};

use crate::world::World;

const METRIC: MetricValue = MetricValue { value: 0.5, count: 10 };

fn encoded(world: &World, delta: Vec<f32>, examples: u64, metrics: Vec<MetricValue>) -> Bytes {
    let UpdateCodec::Plain(codec) = &world.model.codec else { panic!("the world has no privacy") };
    let update = Update { delta, examples, metrics };
    let mut rng = ChaCha20Rng::seed_from_u64(examples);
    let Upload::Words(words) = codec.encode(&update, None, &[0; 32], &mut rng).unwrap().upload else {
        panic!("the world has no codec")
    };
    secure_agg::packing::pack(&words.words, world.model.modulus).into()
}

/// Runs a round in which each participant sends the result of `input`.
async fn round(world: &World, seed: u64, input: impl Fn(usize) -> Bytes) {
    // Another engine each time: all state is in rows and blobs.
    let engine = world.engine(seed);
    for (index, participant) in world.start_round(&engine).await.into_iter().enumerate() {
        assert!(world.upload(participant, input(index)).await);
    }
    engine.step_all().await.unwrap();
}

async fn published(world: &World, version: usize) -> Parameters {
    let row = &world.versions().await[version];
    checkpoint::read(&world.blobs.get(row.sha256).await.unwrap(), &world.model.tensors.published).unwrap()
}

fn near(values: &[f32], expected: impl Fn(usize) -> f32) {
    for (index, value) in values.iter().enumerate() {
        assert!((value - expected(index)).abs() < 1e-4, "{index}: {value} instead of {}", expected(index));
    }
}

#[tokio::test]
async fn fed_nova_multiplies_the_mean_by_the_mean_of_the_steps() {
    let world = World::with(3, |spec| spec.training.solver = Some(Solver::FedNova { steps: Some(10) })).await;
    let parameters = world.model.tensors.shared.len();
    // Weights 10, 20, 30; steps 1, 0.5, 2 times the plan's; normalised updates 0.1, 0.2, 0.3.
    round(&world, 1, |index| {
        let (ratio, step) = [(1.0, 0.1), (0.5, 0.2), (2.0, 0.3)][index];
        let examples = [10, 20, 30][index];
        let steps = MetricValue { value: ratio, count: examples };
        encoded(&world, vec![step; parameters], examples, vec![METRIC, METRIC, steps])
    })
    .await;
    let (base, after) = (published(&world, 0).await, published(&world, 1).await);
    // (10 * 1 + 20 * 0.5 + 30 * 2) / 60 times (10 * 0.1 + 20 * 0.2 + 30 * 0.3) / 60
    let step = 80.0 / 60.0 * 14.0 / 60.0;
    near(after.values(), |index| base.values()[index] + step);
    let names: Vec<_> = world.round(1).await.metrics.into_iter().map(|metric| metric.name).collect();
    assert_eq!(names, ["loss", "accuracy"], "the steps are no metric of the task");
}

#[tokio::test]
async fn a_sum_that_tells_of_impossible_steps_makes_no_version() {
    let world = World::with(3, |spec| spec.training.solver = Some(Solver::FedNova { steps: Some(10) })).await;
    let parameters = world.model.tensors.shared.len();
    round(&world, 1, |_| {
        let steps = MetricValue { value: 1000.0, count: 10 };
        encoded(&world, vec![0.1; parameters], 10, vec![METRIC, METRIC, steps])
    })
    .await;
    world.assert_failed(1, FailureReason::GarbageSum).await;
}

#[tokio::test]
async fn scaffold_keeps_the_control_variate_beside_the_model_and_out_of_the_optimizer() {
    let world = World::with(3, |spec| {
        spec.training.solver = Some(Solver::Scaffold { population: 6, steps: Some(10) });
        spec.aggregation.max_weight = 1;
        spec.aggregation.optimizer = ServerOptimizer::FedAvgM { learning_rate: 1.0, momentum: 0.5 };
    })
    .await;
    let parameters = world.model.tensors.shared.len();
    assert_eq!(world.model.tensors.published.len(), 2 * parameters);
    let base = published(&world, 0).await;
    near(&base.values()[parameters..], |_| 0.0);
    let input = |index: usize| {
        let (step, change) = [(0.1, 0.4), (0.2, -0.1), (0.3, 0.6)][index];
        let delta = [vec![step; parameters], vec![change; parameters]].concat();
        encoded(&world, delta, 10, vec![METRIC, METRIC])
    };
    // Three of six: c moves by half of the mean change 0.3, with or without momentum.
    for (number, model, control) in [(1, 0.2, 0.15), (2, 0.5, 0.3)] {
        round(&world, number, input).await;
        let after = published(&world, usize::try_from(number).unwrap()).await;
        near(&after.values()[..parameters], |index| base.values()[index] + model);
        near(&after.values()[parameters..], |_| control);
    }
    let state = world.versions().await[2].optimizer_state.unwrap();
    let state = world.blobs.get(state).await.unwrap();
    assert!(state.len() < 4 * parameters + 1024, "the optimizer remembers the model alone");
}
