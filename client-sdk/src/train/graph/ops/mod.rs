//! The operations of a graph, forward and backward.

mod batch_norm;
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

use self::batch_norm::BatchNorm;
use self::matrix::Gemm;
use self::normalize::Blocks;
#[cfg(feature = "candle")]
pub(super) use self::normalize::draw as draw_dropout;
#[cfg(feature = "candle")]
pub(super) use self::resize::sources as resized_positions;
#[cfg(feature = "candle")]
pub(super) use self::select::positions;
#[cfg(feature = "candle")]
pub(super) use self::shape::{is_kept as is_in_triangle, sources as padded_positions};
use super::context::{Context, Gradients, Step};
use super::kernels::walk::Walk;
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
    let ([shape, ..], [result, ..]) = (shapes, &mut *results) else { return Ok(()) };
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
        Operation::Softmax { axis } => reduce::softmax(*axis as usize, x, first.f32(), result.f32_mut(), arch),
        Operation::LogSoftmax { axis } => reduce::log_softmax(*axis as usize, x, first.f32(), result.f32_mut(), arch),
        Operation::CumSum { axis } => reduce::cum_sum(*axis as usize, x, first.f32(), result.f32_mut()),
        Operation::LayerNorm { axis, epsilon } => {
            Blocks::layer(x, *axis as usize, *epsilon).forward(inputs, result.f32_mut(), saved);
        }
        Operation::GroupNorm { groups, epsilon } => {
            Blocks::groups(x, *groups as usize, *epsilon).forward(inputs, result.f32_mut(), saved);
        }
        Operation::BatchNorm { epsilon, momentum } => {
            let norm = BatchNorm { epsilon: *epsilon, momentum: *momentum };
            return norm.forward(inputs, context.statistics, result.f32_mut(), saved);
        }
        Operation::Dropout { rate } => normalize::dropout(*rate, context.dropout, first.f32(), result.f32_mut(), saved),
        Operation::Reshape { .. } => shape::copy_any(&shape::whole(shape), result, first),
        Operation::Transpose { order } => shape::copy_any(&shape::transpose(order, x, shape), result, first),
        Operation::Expand { .. } | Operation::Fill { .. } => shape::copy_any(&shape::expand(x, shape), result, first),
        Operation::Concat { axis } => shape::concat(*axis as usize, inputs, shape, result),
        Operation::Slice { axis, start, end, step } => {
            let walk = shape::slice(*axis as usize, [*start, *end], *step, x, shape, point);
            walk.iter().for_each(|walk| shape::copy_any(walk, result, first));
        }
        Operation::Gather { axis } => return select::gather(*axis as usize, x, first, pair(inputs)[1].i64(), result),
        Operation::GatherElements { axis } => {
            return select::gather_elements(*axis as usize, [x, shape], first, pair(inputs)[1].i64(), result);
        }
        Operation::Pad { pads, with } => shape::pad(pads, *with, x, shape, first.f32(), result.f32_mut()),
        Operation::Resize { by, coordinates, .. } => {
            resize::resize([x, shape], *by, *coordinates, first.f32(), result.f32_mut());
        }
        Operation::Range { start, step, .. } => {
            shape::range(start.at(point).unwrap_or_default(), *step, result.i64_mut());
        }
        Operation::Triangle { upper, k } => shape::triangle(*upper, *k, x, first, result),
        Operation::Recurrent(recurrence) => recurrent::forward(*recurrence, inputs, results, saved, context),
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
    match operation {
        Operation::Activation(kind) => {
            if let Some((into, dx)) = gradients.target(0) {
                elementwise::activation_back(*kind, [values, y, dy], into, dx, arch);
            }
        }
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
        Operation::Pool(pool) => {
            if let Some((into, dx)) = gradients.target(0) {
                pool::pool_back(pool, [x, shape], [dy, saved], into, dx);
            }
        }
        Operation::Reduce { by, axes, .. } => {
            gradients.add_to_first(|dx| reduce::reduce_back(*by, axes, x, [values, y, dy], dx));
        }
        Operation::Softmax { axis } => {
            if let Some(dx) = gradients.target(0) {
                reduce::softmax_back(*axis as usize, x, [y, dy], dx, arch);
            }
        }
        Operation::LogSoftmax { axis } => {
            if let Some(dx) = gradients.target(0) {
                reduce::log_softmax_back(*axis as usize, x, [y, dy], dx, arch);
            }
        }
        Operation::CumSum { axis } => gradients.add_to_first(|dx| reduce::cum_sum_back(*axis as usize, x, dy, dx)),
        Operation::LayerNorm { axis, epsilon } => {
            Blocks::layer(x, *axis as usize, *epsilon).backward(inputs, dy, saved, gradients);
        }
        Operation::GroupNorm { groups, epsilon } => {
            Blocks::groups(x, *groups as usize, *epsilon).backward(inputs, dy, saved, gradients);
        }
        Operation::BatchNorm { epsilon, momentum } => {
            let norm = BatchNorm { epsilon: *epsilon, momentum: *momentum };
            norm.backward(inputs, dy, saved, gradients);
        }
        Operation::Dropout { .. } => gradients.add_to_first(|dx| normalize::dropout_back(saved, dy, dx)),
        Operation::Concat { axis } => shape::concat_back(*axis as usize, inputs, shape, dy, gradients),
        Operation::Cast { .. } | Operation::Reshape { .. } => along(gradients, dy, || shape::whole(shape)),
        Operation::Transpose { order } => along(gradients, dy, || shape::transpose(order, x, shape)),
        Operation::Expand { .. } | Operation::Fill { .. } => along(gradients, dy, || shape::expand(x, shape)),
        Operation::Slice { axis, start, end, step } => gradients.add_to_first(|dx| {
            let walk = shape::slice(*axis as usize, [*start, *end], *step, x, shape, point);
            walk.iter().for_each(|walk| shape::back(walk, dy, dx));
        }),
        Operation::Gather { axis } => {
            gradients.add_to_first(|dx| select::gather_back(*axis as usize, x, pair(inputs)[1].i64(), dy, dx));
        }
        Operation::GatherElements { axis } => gradients.add_to_first(|dx| {
            select::gather_elements_back(*axis as usize, [x, shape], pair(inputs)[1].i64(), dy, dx);
        }),
        Operation::Pad { pads, with } => {
            gradients.add_to_first(|dx| shape::pad_back(pads, *with, x, shape, dy, dx));
        }
        Operation::Resize { by, coordinates, .. } => {
            gradients.add_to_first(|dx| resize::resize_back([x, shape], *by, *coordinates, dy, dx));
        }
        Operation::Triangle { upper, k } => {
            gradients.add_to_first(|dx| shape::triangle_back(*upper, *k, shape, dy, dx));
        }
        Operation::Recurrent(recurrence) => {
            recurrent::backward(*recurrence, inputs, results, d_results, saved, gradients, context);
        }
        // Integers and truth values have no gradient.
        Operation::Comparison(_) | Operation::Logic(_) | Operation::ArgMax { .. } | Operation::Range { .. } => {}
    }
}

/// Adds the gradient of a result to that of the first input, if it needs one, element by element.
fn along(gradients: &mut Gradients<'_>, dy: &[f32], walk: impl FnOnce() -> Walk<2>) {
    gradients.add_to_first(|dx| shape::back(&walk(), dy, dx));
}

/// Two inputs; shape inference has counted them.
fn pair<'a>(inputs: &[Operand<'a>]) -> [Operand<'a>; 2] {
    [inputs[0], inputs[1]]
}

fn triple<'a>(inputs: &[Operand<'a>]) -> [Operand<'a>; 3] {
    [inputs[0], inputs[1], inputs[2]]
}
