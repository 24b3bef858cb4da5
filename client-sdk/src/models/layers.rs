//! What all models are made of: sizes within bounds, tensors with their first values, affine layers.

use candle_core::Tensor;
use learning::LayoutError;
use task_spec::{Initial, TensorDeclaration};

/// Largest value of any one size of a model.
pub const MAX_SIZE: u32 = 1 << 20;

/// Why sizes do not make a model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArchitectureError {
    /// A size that is zero or beyond what is allowed.
    #[error("{kind}: `{size}` is {value}; it must be from {least} to {most}")]
    Size {
        /// The model's kind.
        kind: &'static str,
        /// Which size.
        size: &'static str,
        /// What was given.
        value: u64,
        /// Least allowed.
        least: u32,
        /// Most allowed.
        most: u32,
    },
    /// Sizes within bounds whose product is not.
    #[error(transparent)]
    Layout(#[from] LayoutError),
}

/// Refuses a size outside `1..=most`.
pub(super) fn check(kind: &'static str, size: &'static str, value: u32, most: u32) -> Result<(), ArchitectureError> {
    check_from(kind, size, value, 1, most)
}

/// Refuses a size outside `least..=most`.
pub(super) fn check_from(
    kind: &'static str,
    size: &'static str,
    value: u32,
    least: u32,
    most: u32,
) -> Result<(), ArchitectureError> {
    if (least..=most).contains(&value) {
        Ok(())
    } else {
        Err(ArchitectureError::Size { kind, size, value: value.into(), least, most })
    }
}

/// A tensor drawn uniformly from `±1 / sqrt(fan_in)`.
pub(super) fn uniform(name: impl Into<String>, shape: &[u32], fan_in: u32) -> TensorDeclaration {
    // Division and square root round once each in IEEE 754: every device gets the same bound.
    #[expect(clippy::cast_possible_truncation, reason = "one rounding to f32 is meant")]
    let bound = (1.0 / f64::from(fan_in)).sqrt() as f32;
    drawn(name, shape, Initial::Uniform { bound })
}

pub(super) fn drawn(name: impl Into<String>, shape: &[u32], init: Initial) -> TensorDeclaration {
    let shape = shape.iter().map(|&dimension| u64::from(dimension)).collect();
    TensorDeclaration { name: name.into(), shape, init }
}

/// `x W^T + b` with PyTorch's `[outputs, inputs]` weights.
pub(super) fn affine(x: &Tensor, weight: &Tensor, bias: &Tensor) -> candle_core::Result<Tensor> {
    x.matmul(&weight.t()?)?.broadcast_add(bias)
}
