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
use crate::element::Element;
use crate::graph_error::GraphError;
use crate::model::{Graph, Lengths, Node, Values};
use crate::operation::Operation;
use crate::shapes::{MAX_ELEMENTS, MAX_RANK, MAX_VALUES, Shapes, TensorType};
use crate::size::Point;

/// The type and sizes of every value of a graph for a batch and a length.
///
/// # Errors
/// [`GraphError`] names the first input, parameter, constant, node or output that is wrong.
pub fn infer(graph: &Graph, point: Point) -> Result<Shapes, GraphError> {
    check_point(graph, point)?;
    let mut types = Vec::new();
    for input in &graph.inputs {
        let wrong = |detail| GraphError::Tensor { kind: "input", name: input.name.clone(), detail };
        let shape = sizes(&input.shape, point).map_err(wrong)?;
        types.push(bounded(TensorType { element: input.element, shape }).map_err(wrong)?);
    }
    for parameter in &graph.parameters {
        let wrong = |detail| GraphError::Tensor { kind: "parameter", name: parameter.name.clone(), detail };
        types.push(bounded(TensorType::f32(fixed(&parameter.shape))).map_err(wrong)?);
    }
    for constant in &graph.constants {
        let wrong = |detail| GraphError::Tensor { kind: "constant", name: constant.name.clone(), detail };
        let (element, count) = match &constant.values {
            Values::F32(values) => (Element::F32, values.len()),
            Values::I64(values) => (Element::I64, values.len()),
            Values::Bool(values) => (Element::Bool, values.len()),
        };
        let tensor = bounded(TensorType { element, shape: fixed(&constant.shape) }).map_err(wrong)?;
        if tensor.elements() != count {
            return Err(wrong(format!(
                "has {count} values, and its shape {:?} needs {}",
                tensor.shape,
                tensor.elements()
            )));
        }
        types.push(tensor);
    }
    for (number, node) in graph.nodes.iter().enumerate() {
        let wrong =
            |detail| GraphError::Node { number, operation: node.operation.name(), name: node.name.clone(), detail };
        let results = results(node, &types, point).map_err(wrong)?;
        for result in results {
            types.push(bounded(result).map_err(wrong)?);
        }
    }
    for output in &graph.outputs {
        if output.value.0 as usize >= types.len() {
            let detail = format!("is value {}, and the graph has {}", output.value.0, types.len());
            return Err(GraphError::Tensor { kind: "output", name: output.name.clone(), detail });
        }
    }
    let elements = types.iter().fold(0_usize, |sum, kind| sum.saturating_add(kind.elements()));
    if elements > MAX_VALUES {
        let batch = point.batch;
        let detail = format!(
            "takes {elements} elements for a batch of {batch}; at most {MAX_VALUES} are allowed: choose a smaller batch"
        );
        return Err(GraphError::Graph(detail));
    }
    Ok(Shapes(types))
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
        Operation::BatchNorm { epsilon } => one(normalization::batch_norm(*epsilon, &inputs)),
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

/// The tensor, if it is within the limits.
fn bounded(tensor: TensorType) -> Inferred {
    if tensor.rank() > MAX_RANK {
        return Err(format!("has {} axes; at most {MAX_RANK} are allowed", tensor.rank()));
    }
    let elements = tensor.shape.iter().try_fold(1_usize, |product, &size| product.checked_mul(size));
    if elements.is_some_and(|elements| (1..=MAX_ELEMENTS).contains(&elements)) {
        Ok(tensor)
    } else {
        Err(format!("has the shape {:?}; 1 to {MAX_ELEMENTS} elements are allowed", tensor.shape))
    }
}
