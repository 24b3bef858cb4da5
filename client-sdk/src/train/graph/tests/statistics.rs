//! Batch normalizations that train by the statistics of the batch.

use std::sync::Arc;

use graph::{
    Activation, Constant, Element, Graph, GraphModel, Input, Loss, Node, Operation, Output, Parameter, Size, ValueId,
    Values,
};
use learning::{Adapters, Parameters, Patterns, checkpoint};
use recipe::Tensors;
use task_spec::{BatchNorm, LocalOptimizer, ModelSpec, TrainingPlan};

use super::numbers;
use crate::models::{Architecture, complete};
use crate::train::graph::memory::training_chunk;
use crate::train::graph::predict::{GraphPredictor, NamedTensor};
use crate::train::graph::tensor::Tensor;
use crate::train::{
    AdaptedBase, Device, Examples, Sgd, TrainError, Trained, evaluate, train, train_adapters, train_while,
};
use crate::trainer::Constraints;

const NAMES: [&str; 8] =
    ["fc1.weight", "fc1.bias", "bn.weight", "bn.bias", "bn.running_mean", "bn.running_var", "fc2.weight", "fc2.bias"];
/// Channels of the normalization, and numbers of an example.
const CHANNELS: usize = 5;
const WIDTH: usize = 4;

/// A classifier of rows of four numbers with a batch normalization; frozen, its statistics are constants.
fn graph(momentum: Option<f32>) -> Graph {
    let shapes: [&[u32]; 8] = [&[5, 4], &[5], &[5], &[5], &[5], &[5], &[3, 5], &[3]];
    let is_constant = |position: usize| momentum.is_none() && (position == 4 || position == 5);
    let parameters = (0..8).filter(|position| !is_constant(*position));
    let constant = |position: usize| Constant {
        name: NAMES[position].into(),
        shape: vec![5],
        values: Values::F32(vec![if position == 4 { 0.0 } else { 1.0 }; CHANNELS]),
    };
    // Values: x, the parameters, the constants.
    let of = if momentum.is_some() { [1, 2, 3, 4, 5, 6, 7, 8] } else { [1, 2, 3, 4, 7, 8, 5, 6] };
    let gemm = Operation::Gemm { transpose_a: false, transpose_b: true, alpha: 1.0, beta: 1.0 };
    let nodes = [
        (gemm.clone(), vec![0, of[0], of[1]]),
        (Operation::BatchNorm { epsilon: 1e-5, momentum }, vec![9, of[2], of[3], of[4], of[5]]),
        (Operation::Activation(Activation::Relu), vec![10]),
        (gemm, vec![11, of[6], of[7]]),
    ];
    Graph {
        version: if momentum.is_some() { Graph::BATCH_STATISTICS } else { Graph::VERSION },
        lengths: None,
        inputs: vec![Input { name: "x".into(), element: Element::F32, shape: vec![Size::BATCH, Size::fixed(4)] }],
        parameters: parameters
            .map(|position| Parameter { name: NAMES[position].into(), shape: shapes[position].to_vec() })
            .collect(),
        constants: (4..6).filter(|position| is_constant(*position)).map(constant).collect(),
        nodes: nodes
            .map(|(operation, inputs)| Node {
                name: String::new(),
                operation,
                inputs: inputs.into_iter().map(ValueId).collect(),
            })
            .to_vec(),
        outputs: vec![Output { name: "y".into(), value: ValueId(12) }],
    }
}

fn model() -> Arc<GraphModel> {
    Arc::new(GraphModel::new(graph(Some(0.1)), Loss::CROSS_ENTROPY).unwrap())
}

/// The classifier as a task's model.
pub(super) fn normalized() -> Architecture {
    Architecture::Graph(model())
}

struct Data {
    features: Vec<f32>,
    labels: Vec<u32>,
}

impl Data {
    /// Rows whose class is the position of their largest number.
    fn new(count: usize) -> Self {
        let features = numbers(count * WIDTH, 1);
        let largest = |row: &[f32]| (0..3_u32).max_by(|&a, &b| row[a as usize].total_cmp(&row[b as usize])).unwrap();
        let labels = features.chunks(WIDTH).map(largest).collect();
        Self { features, labels }
    }

    fn examples(&self) -> Examples<'_> {
        Examples::Labelled { features: &self.features, labels: &self.labels, width: WIDTH }
    }
}

/// The parameters after a training with these settings.
fn trained(
    plan: &TrainingPlan,
    data: &Data,
    constraints: Constraints<'_>,
) -> Result<(Parameters, Trained), TrainError> {
    let start = normalized().initial(1).unwrap();
    let sgd = Sgd { plan, seed: 1 };
    let trained = train_while(&normalized(), &start, data.examples(), sgd, &Device::Cpu, constraints, &mut |_| true)?;
    let end = start.values().iter().zip(&trained.delta).map(|(start, delta)| start + delta).collect();
    Ok((Parameters::new(Arc::clone(start.layout()), end).unwrap(), trained))
}

fn plan(batch_size: u32, steps: u32) -> TrainingPlan {
    TrainingPlan { batch_size, steps: Some(steps), learning_rate: 0.1, ..TrainingPlan::default() }
}

/// Running mean and variance.
fn statistics(parameters: &Parameters) -> [Vec<f32>; 2] {
    [4, 5].map(|index| parameters.tensor(index).to_vec())
}

/// The running statistics after one step on all examples, computed in 64 bits.
fn expected(data: &Data) -> [Vec<f32>; 2] {
    let start = normalized().initial(1).unwrap();
    let (weight, bias) = (start.tensor(0), start.tensor(1));
    let count = data.labels.len() as f64;
    let channel = |channel: usize| {
        let value = |row: &[f32]| -> f64 {
            let terms = row.iter().zip(&weight[channel * WIDTH..]).map(|(x, w)| f64::from(*x) * f64::from(*w));
            terms.sum::<f64>() + f64::from(bias[channel])
        };
        let values: Vec<f64> = data.features.chunks(WIDTH).map(value).collect();
        let mean = values.iter().sum::<f64>() / count;
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
        #[expect(clippy::cast_possible_truncation, reason = "the expected values in the precision of the statistics")]
        let rounded = [0.1 * mean, 0.9 + 0.1 * variance].map(|value| value as f32);
        rounded.into()
    };
    let (means, variances) = (0..CHANNELS).map(channel).unzip();
    [means, variances]
}

fn near(found: &[Vec<f32>; 2], expected: &[Vec<f32>; 2]) {
    for (found, expected) in found.iter().flatten().zip(expected.iter().flatten()) {
        assert!((found - expected).abs() < 1e-6, "{found}, not {expected}");
    }
}

#[test]
fn declared_statistics_start_at_mean_0_and_variance_1() {
    assert_eq!(statistics(&normalized().initial(1).unwrap()), [vec![0.0; CHANNELS], vec![1.0; CHANNELS]]);
}

#[test]
fn step_moves_the_statistics_and_no_optimizer_does() {
    let data = Data::new(12);
    let expected = expected(&data);
    let all = plan(12, 1);
    for plan in [
        all.clone(),
        TrainingPlan { momentum: 0.9, weight_decay: 0.1, proximal_mu: 0.5, ..all.clone() },
        TrainingPlan { optimizer: LocalOptimizer::adamw(), weight_decay: 0.1, ..all.clone() },
        TrainingPlan { gradient_clip: Some(1e-3), ..all.clone() },
    ] {
        let (end, _) = trained(&plan, &data, Constraints::default()).unwrap();
        near(&statistics(&end), &expected);
    }
    // Another anchor of the proximal term, and SCAFFOLD's correction.
    let start = normalized().initial(1).unwrap();
    let ones = Parameters::new(Arc::clone(start.layout()), vec![1.0; start.values().len()]).unwrap();
    let pulled = TrainingPlan { proximal_mu: 1.0, ..all };
    let constraints = Constraints { anchor: Some(&ones), correction: Some(&ones), ..Constraints::default() };
    let (end, _) = trained(&pulled, &data, constraints).unwrap();
    near(&statistics(&end), &expected);
    assert!(end.values() != start.values());
}

#[test]
fn frozen_statistics_stay() {
    let data = Data::new(12);
    let mut frozen = vec![false; 8];
    (frozen[4], frozen[0]) = (true, true);
    let (end, _) = trained(&plan(4, 5), &data, Constraints { frozen: &frozen, ..Constraints::default() }).unwrap();
    let [mean, variance] = statistics(&end);
    assert_eq!(mean, vec![0.0; CHANNELS]);
    assert!(variance.iter().all(|variance| *variance != 1.0));
    assert_eq!(end.tensor(0), normalized().initial(1).unwrap().tensor(0));
}

#[test]
fn accumulated_batches_move_the_statistics_in_turn() {
    let data = Data::new(12);
    let accumulated = TrainingPlan { accumulate: 3, ..plan(4, 1) };
    let (end, _) = trained(&accumulated, &data, Constraints::default()).unwrap();
    // At a rate near 0, three steps see the same weights.
    let (steps, _) =
        trained(&TrainingPlan { learning_rate: 1e-30, ..plan(4, 3) }, &data, Constraints::default()).unwrap();
    assert_eq!(statistics(&end), statistics(&steps));
}

#[test]
fn last_batch_of_one_is_left_out() {
    let epochs = |count, batch_size| {
        let plan = TrainingPlan { epochs: 3, batch_size, learning_rate: 0.1, ..TrainingPlan::default() };
        trained(&plan, &Data::new(count), Constraints::default())
    };
    assert_eq!(epochs(9, 4).unwrap().1.steps, 6);
    assert_eq!(epochs(10, 4).unwrap().1.steps, 9);
    assert_eq!(epochs(2, 32).unwrap().1.steps, 3);
    for (count, batch_size) in [(1, 32), (9, 1)] {
        let error = epochs(count, batch_size).unwrap_err().to_string();
        assert!(error.contains("needs more than one value per channel: at least 2 examples in a batch"), "{error}");
    }
}

#[test]
fn batch_is_never_divided() {
    let data = Data::new(64);
    let within = |limit| training_chunk(&model(), &data.examples(), 64, limit);
    assert_eq!(within(u64::MAX).unwrap(), 64);
    let error = within(8_000).unwrap_err();
    assert!(matches!(error, TrainError::BatchMemory { examples: 64, limit: 8_000, .. }), "{error}");
    assert!(error.to_string().contains("lower training.batch_size"), "{error}");
    let frozen = Arc::new(GraphModel::new(graph(None), Loss::CROSS_ENTROPY).unwrap());
    assert!(training_chunk(&frozen, &data.examples(), 64, 8_000).unwrap() < 64);
}

#[test]
fn evaluation_uses_running_statistics() {
    let data = Data::new(20);
    let plan = TrainingPlan { epochs: 60, batch_size: 5, learning_rate: 0.1, ..TrainingPlan::default() };
    let (end, _) = trained(&plan, &data, Constraints::default()).unwrap();
    let before = evaluate(&normalized(), &normalized().initial(1).unwrap(), data.examples(), &Device::Cpu).unwrap();
    let after = evaluate(&normalized(), &end, data.examples(), &Device::Cpu).unwrap();
    assert!(after.loss < 0.5 * before.loss, "{before:?} {after:?}");
    // An example alone has the same scores as among others.
    let mut predictor = GraphPredictor::new(model(), Arc::new(end)).unwrap();
    let mut scores = |rows: &[f32]| {
        let shape = vec![rows.len() / WIDTH, WIDTH];
        let x = NamedTensor { name: "x".into(), shape, values: Tensor::F32(rows.to_vec()) };
        predictor.predict(&[x]).unwrap().remove(0).values.f32().to_vec()
    };
    let all = scores(&data.features);
    let alone: Vec<f32> = data.features.chunks(WIDTH).flat_map(&mut scores).collect();
    assert!(all.iter().zip(&alone).all(|(one, other)| (one - other).abs() < 1e-5), "{all:?} {alone:?}");
}

#[test]
fn negative_variance_counts_as_zero() {
    let start = normalized().initial(1).unwrap();
    let with = |variance: f32| {
        let mut values = start.values().to_vec();
        let range = start.layout().range(5);
        values[range].fill(variance);
        let parameters = Parameters::new(Arc::clone(start.layout()), values).unwrap();
        evaluate(&normalized(), &parameters, Data::new(6).examples(), &Device::Cpu).unwrap()
    };
    assert_eq!(with(-0.5), with(0.0));
    assert_ne!(with(-0.5), with(1.0));
}

#[test]
fn same_seed_gives_the_same_bits() {
    let [one, other] =
        [(); 2].map(|()| trained(&plan(4, 9), &Data::new(11), Constraints::default()).unwrap().0.values().to_vec());
    assert_eq!(one, other);
}

#[test]
fn frozen_graph_has_the_form_of_before() {
    let json = serde_json::to_string(&graph(None)).unwrap();
    assert!(json.contains(r#"{"do":{"batch_norm":{"epsilon":0.00001}},"of":[9,3,4,7,8]}"#), "{json}");
    assert!(json.starts_with(r#"{"version":1,"#), "{json}");
    let frozen = Architecture::Graph(Arc::new(GraphModel::new(graph(None), Loss::CROSS_ENTROPY).unwrap()));
    let (start, data) = (frozen.initial(1).unwrap(), Data::new(9));
    // A batch of one is as good as another.
    let sgd = Sgd { plan: &TrainingPlan { batch_size: 4, ..TrainingPlan::default() }, seed: 1 };
    assert_eq!(train(&frozen, &start, data.examples(), sgd, &Device::Cpu).unwrap().steps, 3);
}

#[test]
fn adapters_need_frozen_normalizations() {
    let base = normalized().initial(1).unwrap();
    let patterns = Patterns::new(vec!["fc*.weight".into()]).unwrap();
    let adapters = Adapters::new(base.layout(), &patterns, 1, None).unwrap();
    let start = adapters.initial(1).unwrap();
    let adapted = AdaptedBase { base: &base, start: &start, adapters: &adapters };
    let (data, plan) = (Data::new(6), TrainingPlan::default());
    let sgd = Sgd { plan: &plan, seed: 1 };
    let error = train_adapters(&normalized(), adapted, data.examples(), sgd, &Device::Cpu, &mut |_| true).unwrap_err();
    assert!(error.to_string().contains("import it with `--batch-norm frozen`"), "{error}");
}

#[test]
fn local_statistics_never_travel() {
    let architecture = Some(serde_json::to_value(normalized()).unwrap());
    let mut model = ModelSpec { architecture, batch_norm: Some(BatchNorm::Local), ..ModelSpec::default() };
    complete(&mut model).unwrap();
    let tensors = Tensors::of_model(&model, None, None).unwrap();
    let sent: Vec<_> = tensors.shared.tensors().iter().map(|tensor| tensor.name.as_str()).collect();
    assert_eq!(sent, ["fc1.weight", "fc1.bias", "bn.weight", "bn.bias", "fc2.weight", "fc2.bias"]);
    // Without local values, a published version has the initial ones.
    let start = normalized().initial(1).unwrap();
    let (shared, _) = tensors.partition.unwrap().split(&start).unwrap();
    for published in [&shared, &start] {
        let file = checkpoint::write(published).unwrap();
        assert_eq!(normalized().read_published(&file, start.layout()).unwrap(), start);
    }
}
