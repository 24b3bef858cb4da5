//! Networks exported from PyTorch, imported and executed: outputs and gradients against PyTorch's (`make.py`).

use std::collections::BTreeMap;
use std::sync::Arc;

use graph::{Element, GraphModel, Loss, Point};
use graph_import::{Imported, Options, import};

use super::executor::Executor;
use super::tensor::Tensor;
use super::verify::verify_gradients;

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
    executor.prepare(Point { batch: told.batch, length: told.length }).unwrap();
    for (position, input) in model.graph().inputs.iter().enumerate() {
        let numbers = &told.inputs[&input.name];
        *executor.input(position).unwrap() = match input.element {
            Element::F32 => Tensor::F32(numbers.iter().map(f32_of).collect()),
            Element::I64 => Tensor::I64(numbers.iter().filter_map(serde_json::Number::as_i64).collect()),
            Element::Bool => panic!("no case has truth values as inputs"),
        };
    }
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
    for derivative in verify_gradients(&model, &values, 1).unwrap() {
        assert!(derivative.agrees() && !derivative.is_zero(), "{name}: {derivative:?}");
    }
}

/// The regression over numbers and a category, with its parameters.
pub(super) fn table() -> (Arc<GraphModel>, Vec<f32>) {
    let Imported { graph, parameters, .. } = import(include_bytes!("table.onnx"), &Options::default()).unwrap();
    let values = parameters.iter().flat_map(|tensor| &tensor.values).copied().collect();
    (Arc::new(GraphModel::new(graph, Loss::Mse).unwrap()), values)
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
