//! The operations of a graph in those of candle whose gradients are right.

mod convolution;
mod elementwise;
mod matrix;
mod normalize;
mod recurrent;
mod reduce;
mod shape;
mod take;
mod windows;

use candle_core::{DType, Device, Tensor};
use graph::{Operation, Point};

use super::failure::{Failure, missing};
use super::tape::{Mark, Tape};
use super::value::{Value, upload};
use crate::train::graph::ops::draw_dropout;
use crate::train::graph::tensor::Tensor as Elements;

/// What the operations of a pass share.
#[derive(Clone, Copy)]
pub(super) struct Context<'a> {
    pub(super) device: &'a Device,
    /// Type of the floats.
    pub(super) dtype: DType,
    pub(super) point: Point,
    /// The seed of dropout; `None` where all elements stay.
    pub(super) dropout: Option<u64>,
    /// The exponent of a power, if it is a constant number.
    pub(super) exponent: Option<f32>,
}

/// The inputs of a node, and the shape of its first result.
pub(super) struct Node<'a> {
    pub(super) operation: &'a Operation,
    pub(super) inputs: &'a [&'a Value],
    /// Shapes of the inputs.
    pub(super) shapes: &'a [&'a [usize]],
    pub(super) result: &'a [usize],
}

/// Records the results of a node, which are floats.
pub(super) fn forward(node: &Node<'_>, context: &Context<'_>, tape: &mut Tape) -> Result<Vec<Mark>, Failure> {
    let mut marks = Vec::with_capacity(node.inputs.len());
    let mut elements = None;
    for (input, shape) in node.inputs.iter().zip(node.shapes) {
        match input {
            Value::Floats(mark) => marks.push(*mark),
            Value::Elements(found) => elements = Some((found, *shape)),
        }
    }
    if let Operation::Recurrent(recurrence) = node.operation {
        return Ok(recurrent::forward(*recurrence, &marks, tape)?);
    }
    let floats: Vec<Tensor> = marks.iter().map(|mark| tape.read(*mark)).collect::<candle_core::Result<_>>()?;
    let result = match elements {
        Some((elements, shape)) => with_elements(node, &floats, (elements, shape), context)?,
        None => of_floats(node, &floats, context)?,
    };
    // An input of more axes than the others, of one element each, gives its axes to the result.
    let result = if result.dims() == node.result { result } else { result.reshape(node.result)? };
    Ok(vec![tape.record(result)])
}

/// The result of an operation on floats, with integers or truth values in memory.
fn with_elements(
    node: &Node<'_>,
    floats: &[Tensor],
    (elements, shape): (&Elements, &[usize]),
    context: &Context<'_>,
) -> Result<Tensor, Failure> {
    let Context { device, dtype, .. } = *context;
    if let Operation::Cast { .. } = node.operation {
        return Ok(upload(elements, shape, dtype, device)?.to_dtype(dtype)?);
    }
    if let Operation::Where = node.operation {
        let condition = upload(elements, shape, dtype, device)?;
        return Ok(elementwise::choice(&condition, exactly(floats)?, node.result)?);
    }
    let [x] = exactly(floats)?;
    if let Operation::Gather { axis } = node.operation {
        return take::gather(x, *axis as usize, elements.i64(), node.result);
    }
    if let Operation::GatherElements { axis } = node.operation {
        return take::gather_elements(x, *axis as usize, elements.i64(), shape);
    }
    Err(missing().into())
}

/// The result of an operation on floats alone.
fn of_floats(node: &Node<'_>, floats: &[Tensor], context: &Context<'_>) -> Result<Tensor, Failure> {
    let result = node.result;
    let [x] = exactly(floats)?;
    let computed = match node.operation {
        Operation::Activation(kind) => elementwise::activation(*kind, x),
        Operation::Arithmetic(kind) => elementwise::arithmetic(*kind, exactly(floats)?, result, context.exponent),
        Operation::Cast { .. } => Ok(x.clone()),
        Operation::MatMul => matrix::matmul(exactly(floats)?, result),
        Operation::Gemm { transpose_a, transpose_b, alpha, beta } => {
            let [a, b] = exactly(floats)?;
            let a = if *transpose_a { a.t()? } else { a.clone() };
            let b = if *transpose_b { b.t()? } else { b.clone() };
            matrix::gemm([&a, &b], floats.get(2), [*alpha, *beta])
        }
        Operation::Conv(conv) => convolution::conv(conv, exactly(floats)?, floats.get(2), result),
        Operation::ConvTranspose { of, .. } => convolution::transposed(of, exactly(floats)?, floats.get(2), result),
        Operation::Pool(pool) => windows::pool(pool, x, result),
        Operation::Reduce { by, axes, .. } => reduce::reduce(*by, axes, x, result),
        Operation::Softmax { axis } => reduce::softmax(x, *axis as usize),
        Operation::LogSoftmax { axis } => reduce::log_softmax(x, *axis as usize),
        Operation::CumSum { axis } => reduce::cum_sum(x, *axis as usize),
        Operation::LayerNorm { axis, epsilon } => {
            let [x, scale] = exactly(floats)?;
            normalize::layer(x, scale, floats.get(2), *axis as usize, *epsilon)
        }
        Operation::GroupNorm { groups, epsilon } => normalize::groups(exactly(floats)?, *groups as usize, *epsilon),
        Operation::BatchNorm { epsilon, .. } => normalize::batch(exactly(floats)?, *epsilon),
        Operation::Dropout { rate } => dropout(x, *rate, context.dropout),
        Operation::Reshape { .. } => x.reshape(result),
        Operation::Transpose { order } => x.permute(order.iter().map(|&axis| axis as usize).collect::<Vec<_>>()),
        Operation::Expand { .. } | Operation::Fill { .. } => x.broadcast_as(result),
        Operation::Concat { axis } => shape::concat(floats, *axis as usize),
        Operation::Slice { axis, start, end, step } => {
            shape::slice(x, *axis as usize, [*start, *end].map(|bound| bound.at(context.point)), *step)
        }
        Operation::Pad { pads, with } => shape::pad(x, pads, *with),
        Operation::Resize { by, coordinates, .. } => shape::resize(x, result, *by, *coordinates),
        Operation::Triangle { upper, k } => shape::triangle(x, *upper, *k),
        // Their results, or one of their inputs, are no floats; a recurrence has several results.
        Operation::Comparison(_)
        | Operation::Logic(_)
        | Operation::Where
        | Operation::ArgMax { .. }
        | Operation::Gather { .. }
        | Operation::GatherElements { .. }
        | Operation::Range { .. }
        | Operation::Recurrent(_) => Err(missing()),
    };
    Ok(computed?)
}

/// The same draws as on the CPU.
fn dropout(x: &Tensor, rate: f32, seed: Option<u64>) -> candle_core::Result<Tensor> {
    let Some(seed) = seed.filter(|_| rate > 0.0) else { return Ok(x.clone()) };
    let mut mask = Vec::with_capacity(x.elem_count());
    draw_dropout(rate, seed, x.elem_count(), &mut mask);
    x * Tensor::from_vec(mask, x.shape(), x.device())?.to_dtype(x.dtype())?
}

/// The first `N` inputs of a node; an error if it has fewer.
fn exactly<const N: usize>(floats: &[Tensor]) -> candle_core::Result<[&Tensor; N]> {
    match floats.first_chunk::<N>() {
        Some(first) => Ok(first.each_ref()),
        None => Err(missing()),
    }
}
