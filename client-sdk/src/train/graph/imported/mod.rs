//! Networks exported from PyTorch, imported and executed: outputs and gradients against PyTorch's (`make.py`).

use std::collections::BTreeMap;
use std::sync::Arc;

use graph::{Element, GraphModel, Input, Loss, Point};
use graph_import::{BatchNorm, Imported, Options, import};
use learning::Parameters;
use task_spec::TrainingPlan;

use super::executor::Executor;
use super::tensor::Tensor;
use super::verify::verify_gradients;
use crate::models::Architecture;
use crate::train::{Device, Examples, Sgd, train};

#[derive(serde::Deserialize)]
struct Expected {
    inputs: BTreeMap<String, Vec<serde_json::Number>>,
    batch: u32,
    length: u32,
    output: Vec<f32>,
    /// Weights of the outputs in the sum whose gradients these are.
    weights: Vec<f32>,
    gradients: BTreeMap<String, Vec<f32>>,
}

impl Expected {
    fn point(&self) -> Point {
        Point { batch: self.batch, length: self.length }
    }

    /// The inputs in the graph's order.
    fn tensors(&self, model: &GraphModel) -> Vec<Tensor> {
        let tensor = |input: &Input| {
            let numbers = &self.inputs[&input.name];
            match input.element {
                Element::F32 => Tensor::F32(numbers.iter().map(f32_of).collect()),
                Element::I64 => Tensor::I64(numbers.iter().filter_map(serde_json::Number::as_i64).collect()),
                Element::Bool => panic!("no case has truth values as inputs"),
            }
        };
        model.graph().inputs.iter().map(tensor).collect()
    }
}

/// Compares candle's output and gradients with PyTorch's.
#[cfg(feature = "candle")]
fn check_on_candle(name: &str, model: &GraphModel, values: &[f32], told: &Expected) {
    let (graph, inputs, seed) = (model.graph(), told.tensors(model), (model.output(), &told.weights[..]));
    let (output, gradients) = super::candle::tests::computed(graph, &inputs, values, told.point(), seed, None);
    let worst = error(&output, &told.output);
    assert!(worst < 1e-5, "{name}: candle's output differs by {worst}");
    for (parameter, gradient) in graph.parameters.iter().zip(&gradients) {
        let worst = error(gradient, &told.gradients[&parameter.name]);
        assert!(worst < 1e-4, "{name}: candle's gradient of {} differs by {worst}", parameter.name);
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the nearest number of 32 bits is meant")]
fn f32_of(number: &serde_json::Number) -> f32 {
    number.as_f64().unwrap() as f32
}

/// The largest difference, relative to the largest expected value.
fn error(found: &[f32], expected: &[f32]) -> f32 {
    assert_eq!(found.len(), expected.len());
    let largest = expected.iter().fold(1e-3_f32, |largest, value| largest.max(value.abs()));
    found.iter().zip(expected).map(|(found, expected)| (found - expected).abs() / largest).fold(0.0, f32::max)
}

fn check(name: &str, onnx: &[u8], told: &str, loss: Loss, options: &Options) {
    let Imported { graph, parameters, .. } = import(onnx, options).unwrap_or_else(|error| panic!("{name}: {error}"));
    let told: Expected = serde_json::from_str(told).unwrap();
    let decoded = graph::decode(&graph::encode(&graph).unwrap()).unwrap();
    assert_eq!(decoded, graph, "{name}: the graph survives JSON");
    let model = Arc::new(GraphModel::new(graph, loss).unwrap());
    let values: Vec<f32> = parameters.iter().flat_map(|tensor| &tensor.values).copied().collect();
    let mut executor = Executor::new(Arc::clone(&model));
    executor.prepare(told.point()).unwrap();
    executor.inputs().clone_from_slice(&told.tensors(&model));
    executor.set_parameters(&values);
    executor.forward(None).unwrap();
    let worst = error(executor.value(model.output()), &told.output);
    assert!(worst < 1e-5, "{name}: the output differs by {worst}");
    let mut gradient = vec![0.0; values.len()];
    executor.backward(model.output(), &told.weights, &mut gradient).unwrap();
    let mut rest = &gradient[..];
    assert_eq!(parameters.len(), told.gradients.len(), "{name}: every parameter of PyTorch trains");
    for tensor in &parameters {
        let (own, after) = rest.split_at(tensor.values.len());
        rest = after;
        let worst = error(own, &told.gradients[&tensor.name]);
        assert!(worst < 1e-4, "{name}: the gradient of {} differs by {worst}", tensor.name);
    }
    #[cfg(feature = "candle")]
    check_on_candle(name, &model, &values, &told);
    for derivative in verify_gradients(&model, &values, 1).unwrap() {
        assert!(derivative.agrees() && !derivative.is_zero(), "{name}: {derivative:?}");
    }
}

/// The regression over numbers and a category, with its parameters.
pub(super) fn table() -> (Arc<GraphModel>, Vec<f32>) {
    model(include_bytes!("table.onnx"), &Options::default(), Loss::Mse)
}

/// The transformer over 7 tokens, with its parameters.
pub(super) fn transformer() -> (Arc<GraphModel>, Vec<f32>) {
    let tied = Options { tied: vec!["embed.weight".to_owned()], ..Options::default() };
    model(include_bytes!("transformer.onnx"), &tied, Loss::NextToken { ignore: None })
}

fn model(onnx: &[u8], options: &Options, loss: Loss) -> (Arc<GraphModel>, Vec<f32>) {
    let Imported { graph, parameters, .. } = import(onnx, options).unwrap();
    let values = parameters.iter().flat_map(|tensor| &tensor.values).copied().collect();
    (Arc::new(GraphModel::new(graph, loss).unwrap()), values)
}

macro_rules! case {
    ($name:literal, $loss:expr, $options:expr) => {
        check($name, include_bytes!(concat!($name, ".onnx")), include_str!(concat!($name, ".json")), $loss, &$options)
    };
}

#[test]
fn residual_network_equals_pytorch() {
    case!("residual", Loss::CROSS_ENTROPY, Options::default());
}

#[test]
fn transformer_with_tied_head_equals_pytorch() {
    let tied = Options { tied: vec!["embed.weight".to_owned()], ..Options::default() };
    case!("transformer", Loss::NextToken { ignore: None }, tied);
}

#[test]
fn recurrent_network_equals_pytorch() {
    case!("recurrent", Loss::NextToken { ignore: None }, Options::default());
}

#[test]
fn regression_with_two_inputs_equals_pytorch() {
    case!("table", Loss::Mse, Options::default());
}

#[derive(serde::Deserialize)]
struct Steps {
    x: Vec<f32>,
    labels: Vec<u32>,
    steps: Vec<Step>,
}

#[derive(serde::Deserialize)]
struct Step {
    loss: f64,
    /// Parameters and running statistics after the step.
    state: BTreeMap<String, Vec<f32>>,
}

#[test]
fn steps_by_batch_statistics_equal_pytorch() {
    let options = Options { batch_norm: BatchNorm::Batch, ..Options::default() };
    let Imported { graph, parameters, .. } = import(include_bytes!("residual.onnx"), &options).unwrap();
    let Steps { x, labels, steps } = serde_json::from_str(include_str!("batch_statistics.json")).unwrap();
    let examples = Examples::Labelled { features: &x, labels: &labels, width: 36 };
    let names: Vec<_> = graph.parameters.iter().map(|tensor| tensor.name.clone()).collect();
    let model = Architecture::Graph(Arc::new(GraphModel::new(graph, Loss::CROSS_ENTROPY).unwrap()));
    let values = parameters.iter().flat_map(|tensor| &tensor.values).copied().collect();
    let start = Parameters::new(Arc::new(model.layout().unwrap()), values).unwrap();
    let mut losses = 0.0;
    for (taken, expected) in (1..).zip(steps) {
        let plan = TrainingPlan {
            steps: Some(taken),
            batch_size: 8,
            learning_rate: 0.1,
            momentum: 0.9,
            ..TrainingPlan::default()
        };
        let trained = train(&model, &start, examples, Sgd { plan: &plan, seed: 1 }, &Device::Cpu).unwrap();
        losses += expected.loss;
        let loss = trained.mean_loss * f64::from(taken);
        assert!((loss - losses).abs() < 1e-5 * losses, "{taken} steps: {loss}, not {losses}");
        assert_eq!(expected.state.len(), names.len());
        let mut end = start.values().iter().zip(&trained.delta).map(|(start, delta)| start + delta);
        for (name, tensor) in names.iter().zip(&parameters) {
            let own: Vec<f32> = end.by_ref().take(tensor.values.len()).collect();
            let worst = error(&own, &expected.state[name]);
            assert!(worst < 1e-5, "{name} differs by {worst} after {taken} steps");
        }
    }
}

#[test]
fn damaged_file_is_rejected_with_a_reason() {
    let whole = include_bytes!("table.onnx");
    for length in [0, 1, 10, whole.len() / 2] {
        assert!(import(&whole[..length], &Options::default()).is_err(), "{length}");
    }
    let mut changed = 0;
    for at in (0..whole.len()).step_by(7) {
        let mut bytes = whole.to_vec();
        bytes[at] ^= 0x55;
        // Whatever comes out, nothing panics.
        changed += usize::from(import(&bytes, &Options::default()).is_err());
    }
    assert!(changed > 20, "{changed}");
}
