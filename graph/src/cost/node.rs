//! Cost of one node.

use super::numbers::{product, times};
use super::view::{NodeCost, View};
use super::{products, windows};
use crate::attributes::{Activation, Arithmetic, Reduction, Resampling};
use crate::operation::Operation;

/// Bytes of a position in memory, on devices of 64 bits.
const POSITION: u64 = 8;

/// The cost of a node.
pub(super) fn cost(node: &View<'_>) -> NodeCost {
    let (first, result) = (node.elements(0), product(&node.result.shape));
    match node.operation {
        Operation::MatMul => products::matmul(node),
        Operation::Gemm { transpose_a, .. } => products::gemm(node, *transpose_a),
        Operation::Recurrent(recurrence) => products::recurrent(node, *recurrence),
        Operation::Conv(of) => windows::conv(node, of),
        Operation::ConvTranspose { of, .. } => windows::transposed(node, of.groups),
        Operation::Pool(pool) => windows::pool(node, pool),
        Operation::Activation(kind) => NodeCost::of(node, times([result, per_element(*kind)])),
        Operation::Reduce { by, .. } => NodeCost::with(node, first, reduction(*by, result)),
        Operation::ArgMax { .. } => NodeCost::of(node, first),
        Operation::Softmax { axis } | Operation::LogSoftmax { axis } => {
            let [_, _, inner] = node.split(*axis);
            // Rows along another axis than the last are moved first.
            let copies = if inner > 1 { 3 } else { 1 };
            NodeCost::with(node, times([first, 4]), times([first, 4, copies]))
        }
        Operation::CumSum { axis } => {
            let [_, _, inner] = node.split(*axis);
            NodeCost::with(node, first, times([inner, 4]))
        }
        Operation::LayerNorm { axis, .. } => {
            let [before, size, inner] = node.split(*axis);
            normalization(node, before, times([size, inner]))
        }
        Operation::GroupNorm { groups, .. } => {
            let blocks = times([node.size(0, 0), u64::from(*groups)]);
            normalization(node, blocks, first / blocks.max(1))
        }
        Operation::BatchNorm { momentum: None, .. } => NodeCost::with(node, first, times([node.size(0, 1), 16])),
        // Mean, inverse deviation and variance of each channel are saved; sums over channels are of 64 bits.
        Operation::BatchNorm { momentum: Some(_), .. } => {
            let channels = node.size(0, 1);
            let forward = times([first, 4]);
            NodeCost { saved: times([channels, 12]), ..NodeCost::with(node, forward, times([channels, 24])) }
        }
        Operation::Dropout { .. } => {
            NodeCost { forward: times([result, 4]), saved: times([result, 4]), ..NodeCost::of(node, result) }
        }
        Operation::Gather { .. } => NodeCost::with(node, result, times([node.elements(1), 2 * POSITION])),
        Operation::GatherElements { .. } => {
            NodeCost::with(node, times([result, rank(node)]), times([node.elements(1), 3 * POSITION]))
        }
        Operation::Pad { .. } => NodeCost::with(node, times([result, rank(node)]), sides(node, 2 * POSITION)),
        Operation::Resize { by, .. } => {
            let sources = match by {
                Resampling::Nearest => 1,
                Resampling::Linear => 4,
            };
            NodeCost::with(node, times([result, sources]), sides(node, 4 * POSITION))
        }
        // Each element comes from one input.
        Operation::Concat { .. } => {
            NodeCost { backward: times([result, node.all_gradients().min(1)]), ..NodeCost::of(node, result) }
        }
        Operation::Arithmetic(Arithmetic::Pow) => NodeCost::of(node, times([result, 8])),
        Operation::Arithmetic(_)
        | Operation::Comparison(_)
        | Operation::Logic(_)
        | Operation::Where
        | Operation::Cast { .. }
        | Operation::Reshape { .. }
        | Operation::Transpose { .. }
        | Operation::Expand { .. }
        | Operation::Slice { .. }
        | Operation::Range { .. }
        | Operation::Fill { .. }
        | Operation::Triangle { .. } => NodeCost::of(node, result),
    }
}

/// A normalization of blocks: mean, variance and result, and the same again for each gradient. The mean and deviation
/// of each block are saved in a vector that grows.
fn normalization(node: &View<'_>, blocks: u64, size: u64) -> NodeCost {
    let forward = times([node.elements(0), 4]);
    NodeCost { saved: times([blocks, 16]), temporary: times([size, 8]), ..NodeCost::of(node, forward) }
}

/// Bytes that the gradient of a reduction allocates.
fn reduction(by: Reduction, result: u64) -> u64 {
    match by {
        Reduction::Sum | Reduction::Mean | Reduction::Norm => 0,
        Reduction::Max | Reduction::Min => result,
        Reduction::Product => times([result, 8]),
    }
}

/// Bytes of a list with an entry for each position along each axis of the result.
fn sides(node: &View<'_>, entry: u64) -> u64 {
    let positions = node.result.shape.iter().fold(0_u64, |sum, &size| sum.saturating_add(size as u64));
    times([positions, entry])
}

fn rank(node: &View<'_>) -> u64 {
    node.result.shape.len().max(1) as u64
}

/// Multiply-adds of a function of one number, by the length of its approximation.
fn per_element(activation: Activation) -> u64 {
    match activation {
        Activation::Identity
        | Activation::Neg
        | Activation::Abs
        | Activation::Sqrt
        | Activation::Reciprocal
        | Activation::Relu
        | Activation::LeakyRelu { .. }
        | Activation::HardSigmoid { .. }
        | Activation::HardSwish
        | Activation::Clip { .. }
        | Activation::Floor
        | Activation::Ceil
        | Activation::Sign => 1,
        Activation::Exp
        | Activation::Log
        | Activation::Erf
        | Activation::Sin
        | Activation::Cos
        | Activation::Tanh
        | Activation::Sigmoid
        | Activation::Elu { .. }
        | Activation::Gelu
        | Activation::GeluTanh
        | Activation::Softplus => 8,
    }
}
