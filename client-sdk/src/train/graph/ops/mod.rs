//! The operations of a graph, forward and backward.

mod convolution;
mod elementwise;
mod matrix;
mod normalize;
mod pool;
mod recurrent;
mod reduce;
mod resize;
mod select;
mod shape;

use graph::Operation;

use self::matrix::Gemm;
use self::normalize::Blocks;
use super::context::{Context, Gradients, Step};
use super::tensor::{Operand, Tensor};

/// Computes the results of a node. `saved` is kept for [`backward`].
pub(super) fn forward(
    operation: &Operation,
    inputs: &[Operand<'_>],
    shapes: &[&[usize]],
    results: &mut [Tensor],
    saved: &mut Vec<f32>,
    context: &mut Context,
) -> Step {
    let (arch, point) = (context.arch, context.point);
    if let Operation::Recurrent(recurrence) = operation {
        recurrent::forward(*recurrence, inputs, results, saved, context);
        return Ok(());
    }
    let ([shape, ..], [result, ..]) = (shapes, results) else { return Ok(()) };
    let (first, x) = match inputs {
        [first, ..] => (first.tensor, first.shape),
        [] => (&Tensor::Bool(Vec::new()), &[][..]),
    };
    match operation {
        Operation::Activation(kind) => elementwise::activation(*kind, first.f32(), result.f32_mut(), arch),
        Operation::Arithmetic(kind) => return elementwise::arithmetic(*kind, pair(inputs), shape, result, arch),
        Operation::Comparison(kind) => elementwise::comparison(*kind, pair(inputs), shape, result.bool_mut(), arch),
        Operation::Logic(kind) => elementwise::logic(*kind, inputs, shape, result.bool_mut(), arch),
        Operation::Where => elementwise::choice(triple(inputs), shape, result),
        Operation::Cast { .. } => elementwise::cast(first, result),
        Operation::MatMul => matrix::matmul(pair(inputs), result.f32_mut(), context),
        Operation::Gemm { transpose_a, transpose_b, alpha, beta } => {
            let gemm = Gemm { transpose_a: *transpose_a, transpose_b: *transpose_b, alpha: *alpha, beta: *beta };
            gemm.forward(inputs, shape, result.f32_mut(), context);
        }
        Operation::Conv(conv) => convolution::conv(conv, inputs, shape, result.f32_mut(), context),
        Operation::ConvTranspose { of, .. } => convolution::transposed(of, inputs, shape, result.f32_mut(), context),
        Operation::Pool(pool) => pool::pool(pool, inputs[0], shape, result.f32_mut(), saved, context),
        Operation::Reduce { by, axes, .. } => reduce::reduce(*by, axes, x, first.f32(), result.f32_mut()),
        Operation::ArgMax { axis } => reduce::arg_max(*axis as usize, x, first.f32(), result.i64_mut()),
        Operation::Softmax { axis } => reduce::softmax(*axis as usize, x, first.f32(), result.f32_mut()),
        Operation::LogSoftmax { axis } => reduce::log_softmax(*axis as usize, x, first.f32(), result.f32_mut()),
        Operation::CumSum { axis } => reduce::cum_sum(*axis as usize, x, first.f32(), result.f32_mut()),
        Operation::LayerNorm { axis, epsilon } => {
            Blocks::layer(x, *axis as usize, *epsilon).forward(inputs, result.f32_mut(), saved);
        }
        Operation::GroupNorm { groups, epsilon } => {
            Blocks::groups(x, *groups as usize, *epsilon).forward(inputs, result.f32_mut(), saved);
        }
        Operation::BatchNorm { epsilon } => normalize::batch_norm(inputs, *epsilon, result.f32_mut()),
        Operation::Dropout { rate } => match context.dropout {
            Some(seed) if *rate > 0.0 => normalize::dropout(*rate, seed, first.f32(), result.f32_mut(), saved),
            Some(_) | None => {
                saved.clear();
                result.f32_mut().copy_from_slice(first.f32());
            }
        },
        Operation::Reshape { .. } => shape::copy_any(&shape::whole(shape), result, first),
        Operation::Transpose { order } => shape::copy_any(&shape::transpose(order, x, shape), result, first),
        Operation::Expand { .. } | Operation::Fill { .. } => shape::copy_any(&shape::expand(x, shape), result, first),
        Operation::Concat { axis } => {
            for (walk, input) in shape::concat(*axis as usize, inputs, shape).iter().zip(inputs) {
                shape::copy_any(walk, result, input.tensor);
            }
        }
        Operation::Slice { axis, start, end, step } => {
            if let Some(walk) = shape::slice(*axis as usize, [*start, *end], *step, x, shape, point) {
                shape::copy_any(&walk, result, first);
            }
        }
        Operation::Gather { axis } => {
            return select::gather(*axis as usize, x, first, pair(inputs)[1].i64(), result);
        }
        Operation::GatherElements { axis } => {
            let indices = pair(inputs)[1].i64();
            return select::gather_elements(*axis as usize, [x, shape], first, indices, result);
        }
        Operation::Pad { pads, with } => shape::pad(pads, *with, x, shape, first.f32(), result.f32_mut()),
        Operation::Resize { by, coordinates, .. } => {
            resize::resize([x, shape], *by, *coordinates, first.f32(), result.f32_mut());
        }
        Operation::Range { start, step, .. } => {
            shape::range(start.at(point).unwrap_or_default(), *step, result.i64_mut());
        }
        Operation::Triangle { upper, k } => shape::triangle(*upper, *k, x, first, result),
        // Above, since it has several results.
        Operation::Recurrent(_) => {}
    }
    Ok(())
}

/// A node after its forward pass.
pub(super) struct Done<'a> {
    pub(super) inputs: &'a [Operand<'a>],
    pub(super) results: &'a [Operand<'a>],
    /// Gradients of the results; empty for a result that nothing depends on.
    pub(super) d_results: &'a [&'a [f32]],
    pub(super) saved: &'a [f32],
}

/// Adds the gradients of a node's inputs.
pub(super) fn backward(operation: &Operation, done: &Done<'_>, gradients: &mut Gradients<'_>, context: &mut Context) {
    let Done { inputs, results, d_results, saved } = *done;
    let ([first, ..], [result, ..], [dy, ..]) = (inputs, results, d_results) else { return };
    let (arch, point) = (context.arch, context.point);
    let (x, shape, values, y) = (first.shape, result.shape, first.f32(), result.f32());
    // Operations of one float input; the others are below.
    if let Some(dx) = gradients.of(0) {
        match operation {
            Operation::Activation(kind) => return elementwise::activation_back(*kind, [values, y, dy], dx, arch),
            Operation::Pool(pool) => return pool::pool_back(pool, x, shape, dy, saved, dx),
            Operation::Reduce { by, axes, .. } => return reduce::reduce_back(*by, axes, x, [values, y, dy], dx),
            Operation::Softmax { axis } => return reduce::softmax_back(*axis as usize, x, y, dy, dx),
            Operation::LogSoftmax { axis } => return reduce::log_softmax_back(*axis as usize, x, y, dy, dx),
            Operation::CumSum { axis } => return reduce::cum_sum_back(*axis as usize, x, dy, dx),
            Operation::Cast { .. } | Operation::Reshape { .. } => return shape::back(&shape::whole(shape), dy, dx),
            Operation::Dropout { .. } if saved.is_empty() => return shape::back(&shape::whole(shape), dy, dx),
            Operation::Dropout { .. } => {
                return dx.iter_mut().zip(dy.iter()).zip(saved).for_each(|((dx, dy), factor)| *dx += dy * factor);
            }
            Operation::Transpose { order } => return shape::back(&shape::transpose(order, x, shape), dy, dx),
            Operation::Expand { .. } | Operation::Fill { .. } => return shape::back(&shape::expand(x, shape), dy, dx),
            Operation::Slice { axis, start, end, step } => {
                if let Some(walk) = shape::slice(*axis as usize, [*start, *end], *step, x, shape, point) {
                    shape::back(&walk, dy, dx);
                }
                return;
            }
            Operation::Gather { axis } => {
                return select::gather_back(*axis as usize, x, pair(inputs)[1].i64(), dy, dx);
            }
            Operation::GatherElements { axis } => {
                return select::gather_elements_back(*axis as usize, [x, shape], pair(inputs)[1].i64(), dy, dx);
            }
            Operation::Pad { pads, with } => return shape::pad_back(pads, *with, x, shape, dy, dx),
            Operation::Resize { by, coordinates, .. } => {
                return resize::resize_back([x, shape], *by, *coordinates, dy, dx);
            }
            Operation::Triangle { upper, k } => return shape::triangle_back(*upper, *k, shape, dy, dx),
            Operation::Arithmetic(_)
            | Operation::Comparison(_)
            | Operation::Logic(_)
            | Operation::Where
            | Operation::MatMul
            | Operation::Gemm { .. }
            | Operation::Conv(_)
            | Operation::ConvTranspose { .. }
            | Operation::ArgMax { .. }
            | Operation::LayerNorm { .. }
            | Operation::GroupNorm { .. }
            | Operation::BatchNorm { .. }
            | Operation::Concat { .. }
            | Operation::Range { .. }
            | Operation::Recurrent(_) => {}
        }
    }
    match operation {
        Operation::Arithmetic(kind) => elementwise::arithmetic_back(*kind, pair(inputs), shape, dy, gradients, arch),
        Operation::Where => elementwise::choice_back(triple(inputs), shape, dy, gradients),
        Operation::MatMul => matrix::matmul_back(pair(inputs), dy, gradients, context),
        Operation::Gemm { transpose_a, transpose_b, alpha, beta } => {
            let gemm = Gemm { transpose_a: *transpose_a, transpose_b: *transpose_b, alpha: *alpha, beta: *beta };
            gemm.backward(inputs, shape, dy, gradients, context);
        }
        Operation::Conv(conv) => convolution::conv_back(conv, inputs, shape, dy, gradients, context),
        Operation::ConvTranspose { of, .. } => {
            convolution::transposed_back(of, inputs, shape, dy, gradients, context);
        }
        Operation::LayerNorm { axis, epsilon } => {
            Blocks::layer(x, *axis as usize, *epsilon).backward(inputs, dy, saved, gradients);
        }
        Operation::GroupNorm { groups, epsilon } => {
            Blocks::groups(x, *groups as usize, *epsilon).backward(inputs, dy, saved, gradients);
        }
        Operation::BatchNorm { epsilon } => normalize::batch_norm_back(inputs, *epsilon, dy, gradients),
        Operation::Concat { axis } => {
            for (input, walk) in shape::concat(*axis as usize, inputs, shape).iter().enumerate() {
                if let Some(dx) = gradients.of(input) {
                    shape::back(walk, dy, dx);
                }
            }
        }
        Operation::Recurrent(recurrence) => {
            recurrent::backward(*recurrence, inputs, results, d_results, saved, gradients, context);
        }
        // Their only gradient is that of the first input.
        Operation::Activation(_)
        | Operation::Comparison(_)
        | Operation::Logic(_)
        | Operation::Cast { .. }
        | Operation::Pool(_)
        | Operation::Reduce { .. }
        | Operation::ArgMax { .. }
        | Operation::Softmax { .. }
        | Operation::LogSoftmax { .. }
        | Operation::Dropout { .. }
        | Operation::Reshape { .. }
        | Operation::Transpose { .. }
        | Operation::Expand { .. }
        | Operation::Slice { .. }
        | Operation::Gather { .. }
        | Operation::GatherElements { .. }
        | Operation::Pad { .. }
        | Operation::Resize { .. }
        | Operation::Range { .. }
        | Operation::Fill { .. }
        | Operation::Triangle { .. }
        | Operation::CumSum { .. } => {}
    }
}

/// Two inputs; shape inference has counted them.
fn pair<'a>(inputs: &[Operand<'a>]) -> [Operand<'a>; 2] {
    [inputs[0], inputs[1]]
}

fn triple<'a>(inputs: &[Operand<'a>]) -> [Operand<'a>; 3] {
    [inputs[0], inputs[1], inputs[2]]
}
