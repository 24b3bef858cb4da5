//! Each operation of a graph as operators of ONNX.

use std::ops::Range;

use graph::{Node, Operation, ValueId};

use super::error::ExportError;
use super::names::Names;
use super::writer::{Writer, integer};
use super::{elementwise, layers, movement};

/// Writes a node whose results have these numbers.
///
/// # Errors
/// [`ExportError::Length`].
pub(super) fn write(w: &mut Writer<'_>, node: &Node, results: Range<u32>) -> Result<(), ExportError> {
    let first = ValueId(results.start);
    let names = Names { inputs: node.inputs.iter().map(|input| w.name(*input)).collect(), output: w.name(first) };
    let along = |name: &str, axis: u32| vec![integer(name, axis.into())];
    match &node.operation {
        Operation::Activation(activation) => elementwise::activation(w, *activation, &names),
        Operation::Arithmetic(by) => elementwise::arithmetic(w, *by, w.kind(first).element, &names),
        Operation::Comparison(by) => elementwise::comparison(w, *by, &names),
        Operation::Logic(by) => elementwise::logic(w, *by, &names),
        Operation::Where => elementwise::choice(w, w.kind(first).element, &names),
        Operation::Cast { to } => elementwise::cast(w, *to, &names),
        Operation::MatMul => w.node_to("MatMul", &names.all(), &names.output, vec![]),
        Operation::Gemm { transpose_a, transpose_b, alpha, beta } => {
            layers::gemm(w, [*transpose_a, *transpose_b], [*alpha, *beta], &names);
        }
        Operation::Conv(of) => w.node_to("Conv", &names.all(), &names.output, layers::convolution(of)),
        Operation::ConvTranspose { of, output_padding } => layers::transposed(w, of, output_padding, &names),
        Operation::Pool(of) => layers::pool(w, of, [node.inputs[0], first], &names),
        Operation::Reduce { by, axes, keep } => layers::reduce(w, *by, axes, *keep, &names),
        Operation::ArgMax { axis } => {
            let attributes = vec![integer("axis", (*axis).into()), integer("keepdims", 0)];
            w.node_to("ArgMax", &names.all(), &names.output, attributes);
        }
        Operation::Softmax { axis } => w.node_to("Softmax", &names.all(), &names.output, along("axis", *axis)),
        Operation::LogSoftmax { axis } => w.node_to("LogSoftmax", &names.all(), &names.output, along("axis", *axis)),
        Operation::LayerNorm { axis, epsilon } => layers::layer_norm(w, *axis, *epsilon, &names),
        Operation::GroupNorm { groups, epsilon } => {
            let x = node.inputs.first().map_or(&[][..], |x| &w.kind(*x).shape).to_vec();
            layers::group_norm(w, *groups, *epsilon, &x, &names);
        }
        Operation::BatchNorm { epsilon, momentum } => layers::batch_norm(w, *epsilon, *momentum, &names),
        // A prediction drops nothing.
        Operation::Dropout { rate: _ } => w.node_to("Identity", &names.all(), &names.output, vec![]),
        Operation::Reshape { to } => movement::reshape(w, to, &names)?,
        Operation::Transpose { order } => movement::transpose(w, order, &names),
        Operation::Expand { to } => movement::expand(w, to, &names)?,
        Operation::Concat { axis } => w.node_to("Concat", &names.all(), &names.output, along("axis", *axis)),
        Operation::Slice { axis, start, end, step } => movement::slice(w, *axis, [*start, *end], *step, &names)?,
        Operation::Gather { axis } => w.node_to("Gather", &names.all(), &names.output, along("axis", *axis)),
        Operation::GatherElements { axis } => {
            w.node_to("GatherElements", &names.all(), &names.output, along("axis", *axis));
        }
        Operation::Pad { pads, with } => movement::pad(w, pads, *with, &names),
        Operation::Resize { to, by, coordinates } => layers::resize(w, to, *by, *coordinates, &names)?,
        Operation::Range { start, end, step } => movement::range(w, [*start, *end], *step, &names)?,
        Operation::Fill { shape } => movement::fill(w, shape, &names)?,
        Operation::Triangle { upper, k } => movement::triangle(w, *upper, *k, &names),
        Operation::CumSum { axis } => {
            let axis = w.integer((*axis).into());
            w.node_to("CumSum", &[names.input(0), &axis], &names.output, vec![]);
        }
        Operation::Recurrent(of) => {
            let outputs = results.map(|result| w.name(ValueId(result))).collect();
            layers::recurrent(w, *of, outputs, &names);
        }
    }
    Ok(())
}
