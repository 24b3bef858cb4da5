//! The operations. Their arithmetic is ONNX's of the same name at opset 18, with fixed attributes.

use serde::{Deserialize, Serialize};

use crate::attributes::{
    Activation, Arithmetic, Comparison, Convolution, Logic, Padding, Pool, Recurrence, RecurrentCell, Reduction,
    Resampling, ResizeCoordinates,
};
use crate::element::Element;
use crate::size::Size;

/// An operation of a node. Axes count from 0 and are below the rank of the first input.
///
/// Every operation has one output, except [`Operation::Recurrent`], whose number of outputs is
/// [`Operation::outputs`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Operation {
    /// A function of each element of a float tensor.
    Activation(Activation),
    /// A function of two float or two integer tensors that broadcast as in NumPy.
    Arithmetic(Arithmetic),
    /// A comparison of two tensors of the same type that broadcast; gives truth values.
    Comparison(Comparison),
    /// A function of truth values that broadcast: two inputs, one for [`Logic::Not`].
    Logic(Logic),
    /// Chooses from the second input where the first is true, else from the third; all broadcast.
    Where,
    /// Converts elements; floats to integers by truncation, numbers to truth values by comparison with 0.
    Cast {
        /// Type of the result.
        to: Element,
    },
    /// The product of matrices in the last two axes, with axes before them that broadcast; a vector is a row or column.
    MatMul,
    /// `alpha * A B + beta * C` for matrices A and B, either transposed first, and an optional C that broadcasts.
    Gemm {
        /// Whether A is transposed.
        transpose_a: bool,
        /// Whether B is transposed.
        transpose_b: bool,
        /// Factor of the product.
        alpha: f32,
        /// Factor of C.
        beta: f32,
    },
    /// A convolution of `[N, C, spatial…]` with weights `[O, C / groups, kernel…]` and an optional bias `[O]`; 1 or 2
    /// spatial axes.
    Conv(Convolution),
    /// A transposed convolution of `[N, C, spatial…]` with weights `[C, O / groups, kernel…]` and an optional bias.
    ConvTranspose {
        /// Strides, padding, dilations and groups.
        of: Convolution,
        /// Added to the end of each spatial axis of the result.
        output_padding: Vec<u32>,
    },
    /// The maximum or mean of each window of `[N, C, spatial…]`; 1 or 2 spatial axes.
    Pool(Pool),
    /// A reduction over axes of a float tensor.
    Reduce {
        /// What is computed.
        by: Reduction,
        /// Axes that are reduced, ascending.
        axes: Vec<u32>,
        /// Whether reduced axes stay, with size 1.
        keep: bool,
    },
    /// Position of the first maximum along an axis, as integers; the axis is removed. No gradient.
    ArgMax {
        /// The axis.
        axis: u32,
    },
    /// `exp(x) / sum(exp(x))` along an axis.
    Softmax {
        /// The axis.
        axis: u32,
    },
    /// The logarithm of [`Operation::Softmax`].
    LogSoftmax {
        /// The axis.
        axis: u32,
    },
    /// Normalization to mean 0 and variance 1 over the axes from `axis` on: x, scale, optional bias, both of the shape
    /// of these axes.
    LayerNorm {
        /// First normalized axis.
        axis: u32,
        /// Added to the variance.
        epsilon: f32,
    },
    /// Normalization of each group of channels of `[N, C, …]`: x, scale `[C]`, bias `[C]`. As many groups as channels
    /// make ONNX's `InstanceNormalization`.
    GroupNorm {
        /// Number of groups, a divisor of C.
        groups: u32,
        /// Added to the variance.
        epsilon: f32,
    },
    /// Normalization of each channel of `[N, C, …]` by running statistics: x, scale, bias, mean and variance, each `[C]`.
    ///
    /// With a momentum, training normalizes by the mean and the biased variance of the batch instead, and gradients flow
    /// through both. A training step then moves the running mean, and the running variance to the unbiased variance of the
    /// batch: `running += momentum * (batch - running)`. A running variance below 0 counts as 0.
    BatchNorm {
        /// Added to the variance.
        epsilon: f32,
        /// Share of the batch in the running statistics, above 0, at most 1. Mean and variance are then parameters that only
        /// batch normalizations read. `None`: the given statistics in training, too.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        momentum: Option<f32>,
    },
    /// Sets elements to 0 with a probability and scales the others by `1 / (1 - rate)` in training; else the identity.
    Dropout {
        /// The probability, at least 0 and below 1.
        rate: f32,
    },
    /// The same elements in row-major order, in another shape. Also ONNX's `Flatten`, `Squeeze` and `Unsqueeze`.
    Reshape {
        /// Sizes of the result; one may be `None`, which stands for what the others leave.
        to: Vec<Option<Size>>,
    },
    /// Another order of the axes.
    Transpose {
        /// For each axis of the result, the axis of the input.
        order: Vec<u32>,
    },
    /// Broadcast to a shape: the result has the sizes that input and `to` broadcast to.
    Expand {
        /// The shape.
        to: Vec<Size>,
    },
    /// The inputs one after the other along an axis.
    Concat {
        /// The axis.
        axis: u32,
    },
    /// Every `step`th element along an axis, from `start` to before `end`. Negative positions count from the end;
    /// positions outside are clamped. A negative step goes down.
    Slice {
        /// The axis.
        axis: u32,
        /// First position.
        start: Size,
        /// Position before which it ends.
        end: Size,
        /// Distance of positions, not 0.
        step: i32,
    },
    /// Elements of the first input along an axis, by the integers in the second; negative ones count from the end.
    Gather {
        /// The axis.
        axis: u32,
    },
    /// For each position of the second input, the element of the first with that integer as its position along an axis.
    GatherElements {
        /// The axis.
        axis: u32,
    },
    /// Elements before and after each axis.
    Pad {
        /// For each axis, how many before and after; negative ones cut.
        pads: Vec<(i32, i32)>,
        /// What is added.
        with: Padding,
    },
    /// The spatial axes of `[N, C, spatial…]` in other sizes.
    Resize {
        /// Sizes of the spatial axes.
        to: Vec<Size>,
        /// How values between positions are made.
        by: Resampling,
        /// How positions of the result correspond to positions of the input.
        coordinates: ResizeCoordinates,
    },
    /// The integers `start`, `start + step`, … before `end`; no inputs.
    Range {
        /// First integer.
        start: Size,
        /// Integer before which it ends.
        end: Size,
        /// Distance, not 0.
        step: i32,
    },
    /// A tensor of a shape whose elements are all the input, a single number.
    Fill {
        /// The shape.
        shape: Vec<Size>,
    },
    /// Zeros below (`upper`) or above the diagonal `k` of the last two axes.
    Triangle {
        /// Whether the upper part stays.
        upper: bool,
        /// Which diagonal; 0 is the main one.
        k: i32,
    },
    /// Running sum along an axis.
    CumSum {
        /// The axis.
        axis: u32,
    },
    /// ONNX's `LSTM`, `GRU` (with `linear_before_reset`) and `RNN` with their default activations, layout 0.
    ///
    /// Inputs: X `[length, batch, inputs]`, W `[directions, gates * hidden, inputs]`, R `[directions, gates * hidden,
    /// hidden]`, B `[directions, 2 * gates * hidden]`, then optionally the initial state `[directions, batch, hidden]`
    /// and, for an LSTM, the initial cell. Gates are in ONNX's order (LSTM i o f c; GRU z r h).
    /// Outputs: Y `[length, directions, batch, hidden]`, the last state and, for an LSTM, the last cell.
    Recurrent(Recurrence),
}

impl Operation {
    /// Its name, as in JSON.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Activation(_) => "activation",
            Self::Arithmetic(_) => "arithmetic",
            Self::Comparison(_) => "comparison",
            Self::Logic(_) => "logic",
            Self::Where => "where",
            Self::Cast { .. } => "cast",
            Self::MatMul => "mat_mul",
            Self::Gemm { .. } => "gemm",
            Self::Conv(_) => "conv",
            Self::ConvTranspose { .. } => "conv_transpose",
            Self::Pool(_) => "pool",
            Self::Reduce { .. } => "reduce",
            Self::ArgMax { .. } => "arg_max",
            Self::Softmax { .. } => "softmax",
            Self::LogSoftmax { .. } => "log_softmax",
            Self::LayerNorm { .. } => "layer_norm",
            Self::GroupNorm { .. } => "group_norm",
            Self::BatchNorm { .. } => "batch_norm",
            Self::Dropout { .. } => "dropout",
            Self::Reshape { .. } => "reshape",
            Self::Transpose { .. } => "transpose",
            Self::Expand { .. } => "expand",
            Self::Concat { .. } => "concat",
            Self::Slice { .. } => "slice",
            Self::Gather { .. } => "gather",
            Self::GatherElements { .. } => "gather_elements",
            Self::Pad { .. } => "pad",
            Self::Resize { .. } => "resize",
            Self::Range { .. } => "range",
            Self::Fill { .. } => "fill",
            Self::Triangle { .. } => "triangle",
            Self::CumSum { .. } => "cum_sum",
            Self::Recurrent(_) => "recurrent",
        }
    }

    /// Number of its outputs.
    #[must_use]
    pub fn outputs(&self) -> u32 {
        match self {
            Self::Recurrent(recurrence) => match recurrence.cell {
                RecurrentCell::Lstm => 3,
                RecurrentCell::Gru | RecurrentCell::Rnn => 2,
            },
            Self::Activation(_)
            | Self::Arithmetic(_)
            | Self::Comparison(_)
            | Self::Logic(_)
            | Self::Where
            | Self::Cast { .. }
            | Self::MatMul
            | Self::Gemm { .. }
            | Self::Conv(_)
            | Self::ConvTranspose { .. }
            | Self::Pool(_)
            | Self::Reduce { .. }
            | Self::ArgMax { .. }
            | Self::Softmax { .. }
            | Self::LogSoftmax { .. }
            | Self::LayerNorm { .. }
            | Self::GroupNorm { .. }
            | Self::BatchNorm { .. }
            | Self::Dropout { .. }
            | Self::Reshape { .. }
            | Self::Transpose { .. }
            | Self::Expand { .. }
            | Self::Concat { .. }
            | Self::Slice { .. }
            | Self::Gather { .. }
            | Self::GatherElements { .. }
            | Self::Pad { .. }
            | Self::Resize { .. }
            | Self::Range { .. }
            | Self::Fill { .. }
            | Self::Triangle { .. }
            | Self::CumSum { .. } => 1,
        }
    }
}
