//! Attributes of the operations.

use serde::{Deserialize, Serialize};

/// A function of one float.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Activation {
    /// The value itself.
    Identity,
    /// `-x`.
    Neg,
    /// `|x|`.
    Abs,
    /// `e^x`.
    Exp,
    /// The natural logarithm.
    Log,
    /// The square root.
    Sqrt,
    /// `1 / x`.
    Reciprocal,
    /// The error function.
    Erf,
    /// The sine.
    Sin,
    /// The cosine.
    Cos,
    /// The hyperbolic tangent.
    Tanh,
    /// `1 / (1 + e^-x)`.
    Sigmoid,
    /// `max(x, 0)`; its gradient at 0 is 0.
    Relu,
    /// `x` if positive, else `alpha * x`.
    LeakyRelu {
        /// Slope below 0.
        alpha: f32,
    },
    /// `x` if positive, else `alpha * (e^x - 1)`.
    Elu {
        /// Limit below 0, negated.
        alpha: f32,
    },
    /// `x * (1 + erf(x / sqrt(2))) / 2`.
    Gelu,
    /// The approximation of [`Activation::Gelu`] by the hyperbolic tangent.
    GeluTanh,
    /// `ln(1 + e^x)`.
    Softplus,
    /// `clip(alpha * x + beta, 0, 1)`.
    HardSigmoid {
        /// Slope.
        alpha: f32,
        /// Value at 0.
        beta: f32,
    },
    /// `x * clip(x / 6 + 1 / 2, 0, 1)`.
    HardSwish,
    /// The value within bounds; infinite bounds are left out.
    Clip {
        /// Lower bound.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        min: Option<f32>,
        /// Upper bound.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        max: Option<f32>,
    },
    /// The next integer below; no gradient.
    Floor,
    /// The next integer above; no gradient.
    Ceil,
    /// -1, 0 or 1; no gradient.
    Sign,
}

impl Activation {
    /// Whether its derivative is 0 wherever it exists, so that it cuts gradients.
    #[must_use]
    pub fn has_no_gradient(self) -> bool {
        match self {
            Self::Floor | Self::Ceil | Self::Sign => true,
            Self::Identity
            | Self::Neg
            | Self::Abs
            | Self::Exp
            | Self::Log
            | Self::Sqrt
            | Self::Reciprocal
            | Self::Erf
            | Self::Sin
            | Self::Cos
            | Self::Tanh
            | Self::Sigmoid
            | Self::Relu
            | Self::LeakyRelu { .. }
            | Self::Elu { .. }
            | Self::Gelu
            | Self::GeluTanh
            | Self::Softplus
            | Self::HardSigmoid { .. }
            | Self::HardSwish
            | Self::Clip { .. } => false,
        }
    }
}

/// A function of two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arithmetic {
    /// `a + b`.
    Add,
    /// `a - b`.
    Sub,
    /// `a * b`.
    Mul,
    /// `a / b`; integers are truncated, and division by 0 is an error.
    Div,
    /// `a^b`; integers wrap, and take a constant as `b`, from 0 to 2^32 - 1.
    Pow,
    /// The remainder with the sign of `b`; no gradient with respect to `b`.
    Mod,
    /// The smaller; where both are equal the gradient goes to `a`.
    Min,
    /// The larger; where both are equal the gradient goes to `a`.
    Max,
}

/// A comparison of two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Comparison {
    /// `a = b`.
    Equal,
    /// `a < b`.
    Less,
    /// `a <= b`.
    LessOrEqual,
    /// `a > b`.
    Greater,
    /// `a >= b`.
    GreaterOrEqual,
}

/// A function of truth values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Logic {
    /// Both.
    And,
    /// At least one.
    Or,
    /// Exactly one.
    Xor,
    /// The opposite of the only input.
    Not,
}

/// Attributes of a convolution; a vector has a number for each spatial axis.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Convolution {
    /// Distances of the kernel's positions.
    pub strides: Vec<u32>,
    /// Zeros before and after each axis.
    pub pads: Vec<(u32, u32)>,
    /// Distances within the kernel.
    pub dilations: Vec<u32>,
    /// Number of groups of channels.
    pub groups: u32,
}

/// Attributes of a pooling; a vector has a number for each spatial axis.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pool {
    /// The number that is computed from each window.
    pub by: PoolKind,
    /// Sizes of the window.
    pub kernel: Vec<u32>,
    /// Distance of neighbouring windows along each axis.
    pub strides: Vec<u32>,
    /// Positions before and after each axis that hold nothing.
    pub pads: Vec<(u32, u32)>,
    /// Whether a window that only begins inside is computed, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ceil: bool,
}

/// What a pooling computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PoolKind {
    /// The maximum; the first of several gets the gradient.
    Max,
    /// The mean of the positions inside.
    Mean,
    /// The mean of all positions, where padding counts as zeros.
    MeanWithPadding,
}

/// What a reduction computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reduction {
    /// The sum.
    Sum,
    /// The mean.
    Mean,
    /// The maximum; the first of several gets the gradient.
    Max,
    /// The minimum; the first of several gets the gradient.
    Min,
    /// The product.
    Product,
    /// The square root of the sum of squares; its gradient at 0 is 0.
    Norm,
}

/// What a padding adds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Padding {
    /// A finite number.
    Constant(f32),
    /// The nearest element.
    Edge,
    /// The elements in reverse order, without the edge.
    Reflect,
}

/// How values between positions are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resampling {
    /// The element at the next position below.
    Nearest,
    /// Linear in each axis.
    Linear,
}

/// How positions of a resized axis correspond to those of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResizeCoordinates {
    /// `(x + 1/2) * scale - 1/2`.
    HalfPixel,
    /// `x * scale`.
    Asymmetric,
    /// First and last positions correspond.
    AlignCorners,
}

/// Attributes of a recurrence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recurrence {
    /// The cell that computes each step of the sequence.
    pub cell: RecurrentCell,
    /// Size of the state.
    pub hidden: u32,
    /// Order of the positions.
    pub direction: Direction,
}

/// The cell of a recurrence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecurrentCell {
    /// Long short-term memory, four gates.
    Lstm,
    /// Gated recurrent unit, three gates, the reset gate applied after the product.
    Gru,
    /// A hyperbolic tangent, one gate.
    Rnn,
}

/// Order in which a recurrence visits the positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// From the first on.
    Forward,
    /// From the last on.
    Reverse,
    /// Both; the directions are an axis of weights and results.
    Both,
}
