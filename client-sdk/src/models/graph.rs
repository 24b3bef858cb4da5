//! Graphs as models: tensors, defaults and inputs.

use std::collections::BTreeSet;
use std::sync::Arc;

use graph::{Arithmetic, Element, GraphModel, Loss, Operation, Point, Size, ValueId};
use learning::checkpoint::{self, CheckpointError};
use learning::contribution::scaffold;
use learning::{Layout, Parameters};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use task_spec::{Initial, TensorDeclaration};

use super::layers::{InputKind, ModelDefaults, drawn, uniform};

pub(super) fn serialize<S: Serializer>(model: &Arc<GraphModel>, serializer: S) -> Result<S::Ok, S::Error> {
    model.as_ref().serialize(serializer)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<GraphModel>, D::Error> {
    GraphModel::deserialize(deserializer).map(Arc::new)
}

/// The parameters in order. Without a given model, scales and running variances of normalizations start at 1, other vectors
/// at 0, and the others are drawn as PyTorch draws the weights of layers.
pub(super) fn tensors(model: &GraphModel) -> Vec<TensorDeclaration> {
    let graph = model.graph();
    let variances: BTreeSet<usize> = graph.batch_statistics().iter().map(|layer| layer.variance).collect();
    let is_scale = |position: usize| variances.contains(&position) || scales(graph, graph.parameter(position));
    let declare = |(position, parameter): (usize, &graph::Parameter)| {
        let shape = &parameter.shape;
        match shape[..] {
            [] | [_] if is_scale(position) => drawn(&parameter.name, shape, Initial::Ones),
            [] | [_] => drawn(&parameter.name, shape, Initial::Zeros),
            [_, ref inputs @ ..] => {
                let fan_in = inputs.iter().fold(1_u32, |product, &size| product.saturating_mul(size)).max(1);
                uniform(&parameter.name, shape, fan_in)
            }
        }
    };
    graph.parameters.iter().enumerate().map(declare).collect()
}

/// The parameters in a published file, with the initial running statistics if the file has none.
///
/// # Errors
/// Any [`CheckpointError`].
pub(super) fn read_published(
    model: &GraphModel,
    file: &[u8],
    layout: &Arc<Layout>,
) -> Result<Parameters, CheckpointError> {
    let statistics = model.graph().running_statistics();
    let found = checkpoint::read_layout(file)?;
    let tensors = || layout.tensors().iter().enumerate();
    let is_given =
        tensors().any(|(position, tensor)| statistics.contains(&position) && found.find(&tensor.name).is_some());
    if statistics.is_empty() || is_given {
        return scaffold::read_model(file, layout);
    }
    let shared = tensors().filter(|(position, _)| !statistics.contains(position)).map(|(_, tensor)| tensor.clone());
    let shared = scaffold::read_model(file, &Arc::new(Layout::new(shared.collect())?))?;
    let mut whole = Parameters::zeros(Arc::clone(layout));
    for variance in model.graph().batch_statistics().iter().map(|layer| layer.variance) {
        whole.values_mut()[layout.range(variance)].fill(1.0);
    }
    let given = tensors().filter(|(position, _)| !statistics.contains(position));
    for (number, (position, _)) in given.enumerate() {
        whole.values_mut()[layout.range(position)].copy_from_slice(shared.tensor(number));
    }
    Ok(whole)
}

/// Whether a value is the scale of a normalization, or a factor, also in another shape.
fn scales(graph: &graph::Graph, value: ValueId) -> bool {
    let mut result = graph.first_result().0;
    let mut of_value = BTreeSet::from([value]);
    for node in &graph.nodes {
        let operation = &node.operation;
        let is_norm = matches!(
            operation,
            Operation::LayerNorm { .. } | Operation::GroupNorm { .. } | Operation::BatchNorm { .. }
        );
        if is_norm && node.inputs.get(1).is_some_and(|scale| of_value.contains(scale)) {
            return true;
        }
        if node.inputs.iter().any(|input| of_value.contains(input)) {
            if matches!(operation, Operation::Arithmetic(Arithmetic::Mul)) {
                return true;
            }
            if matches!(operation, Operation::Reshape { .. } | Operation::Expand { .. }) {
                of_value.insert(ValueId(result));
            }
        }
        result += operation.outputs();
    }
    false
}

/// Default training settings: those of the ready models of its size.
pub(super) fn defaults(model: &GraphModel) -> ModelDefaults {
    let graph = model.graph();
    let last = graph.parameters.iter().rev().find(|parameter| parameter.shape.len() > 1);
    let is_product = |operation: &Operation| matches!(operation, Operation::MatMul | Operation::Gemm { .. });
    let products = || graph.nodes.iter().filter(|node| is_product(&node.operation));
    let linear = graph.parameters.iter().enumerate().filter(|(position, parameter)| {
        parameter.shape.len() == 2 && products().any(|node| node.inputs.contains(&graph.parameter(*position)))
    });
    ModelDefaults {
        epochs: 1,
        batch_size: 32,
        learning_rate: 0.05,
        last_layer: last.map(|parameter| parameter.name.clone()).unwrap_or_default(),
        linear_layers: linear.map(|(_, parameter)| parameter.name.clone()).collect(),
    }
}

/// The form of its examples: rows, characters, or its inputs by name.
pub(super) fn input(model: &GraphModel) -> InputKind {
    let [input] = &model.graph().inputs[..] else { return InputKind::Tensors };
    let one = Point { batch: 1, length: 1 };
    match (input.element, model.loss()) {
        (Element::F32, Loss::CrossEntropy { .. }) if !input.shape.contains(&Size::LENGTH) => {
            let width: i64 = input.shape.iter().map(|size| size.at(one).unwrap_or(0)).product();
            usize::try_from(width).map_or(InputKind::Tensors, InputKind::Features)
        }
        (Element::I64, Loss::NextToken { .. }) if input.shape == [Size::BATCH, Size::LENGTH] => InputKind::Characters,
        (Element::F32 | Element::I64 | Element::Bool, _) => InputKind::Tensors,
    }
}

/// Whether its predictions are right or wrong.
pub(super) fn has_accuracy(model: &GraphModel) -> bool {
    match model.loss() {
        Loss::CrossEntropy { .. } | Loss::NextToken { .. } | Loss::BceWithLogits { .. } => true,
        Loss::Mse | Loss::Huber { .. } | Loss::Poisson => false,
    }
}

/// Number of classes, or of the numbers that it predicts for an example.
pub(super) fn classes(model: &GraphModel) -> u32 {
    let numbers = || model.predictions(Point { batch: 1, length: 1 });
    u32::try_from(model.classes().unwrap_or_else(numbers)).unwrap_or(u32::MAX)
}
