//! Values of a graph on a device and in memory.

use candle_core::{DType, Device, Result, Tensor};

use super::tape::Mark;
use crate::train::graph::tensor::Tensor as Elements;

/// A value of a pass.
pub(super) enum Value {
    /// Floats on the device.
    Floats(Mark),
    /// Integers or truth values in memory.
    Elements(Elements),
}

/// Copies elements to a device: floats as `dtype`, integers as floats, truth values as 0 and 1 in one byte.
pub(super) fn upload(elements: &Elements, shape: &[usize], dtype: DType, device: &Device) -> Result<Tensor> {
    match elements {
        Elements::F32(values) => Tensor::from_slice(values, shape, device)?.to_dtype(dtype),
        #[expect(clippy::cast_precision_loss, reason = "a conversion is asked for")]
        Elements::I64(values) => {
            let values: Vec<f32> = values.iter().map(|&value| value as f32).collect();
            Tensor::from_vec(values, shape, device)?.to_dtype(dtype)
        }
        Elements::Bool(values) => {
            let values: Vec<u8> = values.iter().map(|&value| value.into()).collect();
            Tensor::from_vec(values, shape, device)
        }
    }
}

/// Copies floats to memory.
pub(super) fn download(tensor: &Tensor) -> Result<Vec<f32>> {
    tensor.detach().to_dtype(DType::F32)?.flatten_all()?.to_vec1()
}

/// A number in every place of a shape.
pub(super) fn filled(value: f32, like: &Tensor, shape: &[usize]) -> Result<Tensor> {
    Tensor::full(value, (), like.device())?.to_dtype(like.dtype())?.broadcast_as(shape)
}

/// `f` of a tensor in 32 bits, in the type of the tensor.
pub(super) fn in_32_bits(x: &Tensor, f: impl FnOnce(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
    f(&x.to_dtype(DType::F32)?)?.to_dtype(x.dtype())
}
