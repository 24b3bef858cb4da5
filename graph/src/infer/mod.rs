//! Shape inference: the type and sizes of every value for one batch and one length.
//!
//! It also checks each operation's inputs and attributes, so that the execution of an inferred graph meets no surprise.

mod convolution;
mod elementwise;
mod inputs;
mod matrix;
mod normalization;
mod ports;
mod recurrent;
mod selection;
mod shape;

pub use self::ports::{Extent, Port};
pub use self::selection::{slice_positions, wrapped};

use self::inputs::{Inferred, Inputs, sizes};
use crate::attributes::Arithmetic;
use crate::cost;
use crate::element::Element;
use crate::graph_error::GraphError;
use crate::model::{Graph, Lengths, Node, Values};
use crate::operation::Operation;
use crate::shapes::{MAX_ELEMENTS, MAX_RANK, Shapes, TensorType};
use crate::size::Point;

/// The type and sizes of every value of a graph for a batch and a length, if a training step keeps the limits
/// [`crate::MAX_MULTIPLY_ADDS`] and [`crate::MAX_MEMORY`].
///
/// # Errors
/// [`GraphError`] names the first input, parameter, constant, node or output that is wrong, or the limit.
pub fn infer(graph: &Graph, point: Point) -> Result<Shapes, GraphError> {
    let shapes = within(graph, point, MAX_ELEMENTS)?;
    cost::check(graph, &shapes, point)?;
    Ok(shapes)
}

/// The same for a training step of any cost, with [`MAX_ELEMENTS`] for each example.
pub(crate) fn shapes(graph: &Graph, point: Point) -> Result<Shapes, GraphError> {
    within(graph, point, MAX_ELEMENTS.saturating_mul(point.batch as usize))
}

/// The same for tensors of at most so many elements.
fn within(graph: &Graph, point: Point, most: usize) -> Result<Shapes, GraphError> {
    let shapes = values(graph, point, most)?;
    for output in &graph.outputs {
        let wrong = |detail| GraphError::Tensor { kind: "output", name: output.name.clone(), detail };
        let Some(found) = shapes.all().get(output.value.0 as usize) else {
            return Err(wrong(format!("is value {}, and the graph has {}", output.value.0, shapes.all().len())));
        };
        if found.shape.first() != Some(&(point.batch as usize)) {
            let (batch, shape) = (point.batch, &found.shape);
            return Err(wrong(format!(
                "has the shape {shape:?} for a batch of {batch}; its first axis must be the batch"
            )));
        }
    }
    match graph.outputs.first() {
        Some(first) if point.batch > 1 => {
            let alone = values(graph, Point { batch: 1, ..point }, most)?;
            let rest = |shapes: &Shapes| shapes.get(first.value).shape.get(1..).unwrap_or_default().to_vec();
            if rest(&alone) != rest(&shapes) {
                let detail = format!(
                    "has sizes after its first axis that depend on the batch: {:?} for 1 example, {:?} for {}",
                    rest(&alone),
                    rest(&shapes),
                    point.batch
                );
                return Err(GraphError::Tensor { kind: "output", name: first.name.clone(), detail });
            }
        }
        Some(_) | None => {}
    }
    Ok(shapes)
}

/// The type and sizes of every value.
fn values(graph: &Graph, point: Point, most: usize) -> Result<Shapes, GraphError> {
    check_point(graph, point)?;
    let mut types = given(graph, point, most)?;
    for (number, node) in graph.nodes.iter().enumerate() {
        let wrong =
            |detail| GraphError::Node { number, operation: node.operation.name(), name: node.name.clone(), detail };
        let results = results(node, &types, point).map_err(wrong)?;
        power(graph, node, &results).map_err(wrong)?;
        for result in results {
            types.push(bounded(result, most).map_err(wrong)?);
        }
    }
    Ok(Shapes(types))
}

/// The types of inputs, parameters and constants.
fn given(graph: &Graph, point: Point, most: usize) -> Result<Vec<TensorType>, GraphError> {
    let mut types = Vec::new();
    for input in &graph.inputs {
        let wrong = |detail| GraphError::Tensor { kind: "input", name: input.name.clone(), detail };
        let shape = sizes(&input.shape, point).map_err(wrong)?;
        types.push(bounded(TensorType { element: input.element, shape }, most).map_err(wrong)?);
    }
    for parameter in &graph.parameters {
        let wrong = |detail| GraphError::Tensor { kind: "parameter", name: parameter.name.clone(), detail };
        types.push(bounded(TensorType::f32(fixed(&parameter.shape)), MAX_ELEMENTS).map_err(wrong)?);
    }
    for constant in &graph.constants {
        let wrong = |detail| GraphError::Tensor { kind: "constant", name: constant.name.clone(), detail };
        let (element, count) = match &constant.values {
            Values::F32(values) => (Element::F32, values.len()),
            Values::I64(values) => (Element::I64, values.len()),
            Values::Bool(values) => (Element::Bool, values.len()),
        };
        let tensor = bounded(TensorType { element, shape: fixed(&constant.shape) }, MAX_ELEMENTS).map_err(wrong)?;
        if tensor.elements() != count {
            return Err(wrong(format!(
                "has {count} values, and its shape {:?} needs {}",
                tensor.shape,
                tensor.elements()
            )));
        }
        types.push(tensor);
    }
    Ok(types)
}

/// Checks that a power of integers has an exponent that is known and that integers have a power of.
fn power(graph: &Graph, node: &Node, results: &[TensorType]) -> Result<(), String> {
    let is_power = matches!(node.operation, Operation::Arithmetic(Arithmetic::Pow));
    if !is_power || results.iter().all(|result| result.element != Element::I64) {
        return Ok(());
    }
    let number = node.inputs.get(1).and_then(|id| id.0.checked_sub(graph.constant(0).0));
    match number.and_then(|number| graph.constants.get(number as usize)).map(|constant| &constant.values) {
        Some(Values::I64(exponents)) => match exponents.iter().find(|exponent| u32::try_from(**exponent).is_err()) {
            None => Ok(()),
            Some(exponent) => Err(format!("raises integers to the power {exponent}; 0 to {} are allowed", u32::MAX)),
        },
        Some(Values::F32(_) | Values::Bool(_)) | None => {
            Err("raises integers to a power that is no constant; cast them to floats".to_owned())
        }
    }
}

/// Checks that a graph computes this length.
fn check_point(graph: &Graph, point: Point) -> Result<(), GraphError> {
    match graph.lengths {
        Some(Lengths { least, most }) if !(least..=most).contains(&point.length) => {
            Err(GraphError::Graph(format!("takes sequences of {least} to {most} positions, not {}", point.length)))
        }
        Some(_) | None => Ok(()),
    }
}

/// The types of a node's results, given those of all values before it.
fn results(node: &Node, before: &[TensorType], point: Point) -> Result<Vec<TensorType>, String> {
    let mut inputs = Vec::with_capacity(node.inputs.len());
    for id in &node.inputs {
        let found = before.get(id.0 as usize);
        inputs.push(found.ok_or_else(|| format!("reads value {}, which is not computed before it", id.0))?);
    }
    let inputs = Inputs(&inputs);
    let one = |result: Inferred| result.map(|result| vec![result]);
    match &node.operation {
        Operation::Activation(activation) => one(elementwise::activation(*activation, &inputs)),
        Operation::Arithmetic(_) => one(elementwise::arithmetic(&inputs)),
        Operation::Comparison(comparison) => one(elementwise::comparison(*comparison, &inputs)),
        Operation::Logic(logic) => one(elementwise::logic(*logic, &inputs)),
        Operation::Where => one(elementwise::choice(&inputs)),
        Operation::Cast { to } => one(elementwise::cast(*to, &inputs)),
        Operation::MatMul => one(matrix::matmul(&inputs)),
        Operation::Gemm { transpose_a, transpose_b, alpha, beta } => {
            one(matrix::gemm(&inputs, [*transpose_a, *transpose_b], [*alpha, *beta]))
        }
        Operation::Conv(conv) => one(convolution::conv(conv, &inputs)),
        Operation::ConvTranspose { of, output_padding } => one(convolution::transposed(of, output_padding, &inputs)),
        Operation::Pool(pool) => one(convolution::pool(pool, &inputs)),
        Operation::Reduce { axes, keep, by: _ } => one(normalization::reduce(axes, *keep, &inputs)),
        Operation::ArgMax { axis } => one(normalization::arg_max(*axis, &inputs)),
        Operation::Softmax { axis } | Operation::LogSoftmax { axis } => one(normalization::along(*axis, &inputs)),
        Operation::CumSum { axis } => one(normalization::along(*axis, &inputs)),
        Operation::LayerNorm { axis, epsilon } => one(normalization::layer_norm(*axis, *epsilon, &inputs)),
        Operation::GroupNorm { groups, epsilon } => one(normalization::group_norm(*groups, *epsilon, &inputs)),
        Operation::BatchNorm { epsilon, momentum } => one(normalization::batch_norm(*epsilon, *momentum, &inputs)),
        Operation::Dropout { rate } => one(normalization::dropout(*rate, &inputs)),
        Operation::Reshape { to } => one(shape::reshape(to, point, &inputs)),
        Operation::Transpose { order } => one(shape::transpose(order, &inputs)),
        Operation::Expand { to } => one(shape::expand(to, point, &inputs)),
        Operation::Concat { axis } => one(shape::concat(*axis, &inputs)),
        Operation::Pad { pads, with } => one(shape::pad(pads, *with, &inputs)),
        Operation::Resize { to, by: _, coordinates: _ } => one(shape::resize(to, point, &inputs)),
        Operation::Range { start, end, step } => one(shape::range(*start, *end, *step, point, &inputs)),
        Operation::Fill { shape } => one(shape::fill(shape, point, &inputs)),
        Operation::Triangle { .. } => one(shape::triangle(&inputs)),
        Operation::Slice { axis, start, end, step } => {
            one(selection::slice(*axis, [*start, *end], *step, point, &inputs))
        }
        Operation::Gather { axis } => one(selection::gather(*axis, &inputs)),
        Operation::GatherElements { axis } => one(selection::gather_elements(*axis, &inputs)),
        Operation::Recurrent(recurrence) => recurrent::recurrent(*recurrence, &inputs),
    }
}

fn fixed(shape: &[u32]) -> Vec<usize> {
    shape.iter().map(|&size| size as usize).collect()
}

/// The tensor, if its rank is within the limit and it has at most so many elements.
fn bounded(tensor: TensorType, most: usize) -> Inferred {
    if tensor.rank() > MAX_RANK {
        return Err(format!("has {} axes; at most {MAX_RANK} are allowed", tensor.rank()));
    }
    let elements = tensor.shape.iter().try_fold(1_usize, |product, &size| product.checked_mul(size));
    if elements.is_some_and(|elements| (1..=most).contains(&elements)) {
        Ok(tensor)
    } else {
        Err(format!("has the shape {:?}; 1 to {most} elements are allowed", tensor.shape))
    }
}
