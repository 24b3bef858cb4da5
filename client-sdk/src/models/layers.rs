//! Building blocks of all models: bounded sizes, tensors with initial values, affine layers.

use candle_core::Tensor;
use learning::LayoutError;
use task_spec::{Initial, TensorDeclaration};

/// Maximum value of any size of a model.
pub const MAX_SIZE: u32 = 1 << 20;

/// Reasons sizes do not form a model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArchitectureError {
    /// A size is out of range.
    #[error("{kind}: `{size}` is {value}; it must be from {least} to {most}")]
    Size { kind: &'static str, size: &'static str, value: u64, least: u32, most: u32 },
    /// The sizes are in range, but their product is not.
    #[error(transparent)]
    Layout(#[from] LayoutError),
}

/// Checks that a size is in `1..=most`.
pub(super) fn check(kind: &'static str, size: &'static str, value: u32, most: u32) -> Result<(), ArchitectureError> {
    check_from(kind, size, value, 1, most)
}

/// Checks that a size is in `least..=most`.
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
