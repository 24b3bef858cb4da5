//! Normalizations, in 32 bits. candle's own have no gradient.

use candle_core::{D, DType, Result, Tensor};

use crate::train::graph::candle::value::in_32_bits;

/// Rows of mean 0 and variance 1.
fn normalized(rows: &Tensor, epsilon: f32) -> Result<Tensor> {
    let centred = rows.broadcast_sub(&rows.mean_keepdim(D::Minus1)?)?;
    let variance = centred.sqr()?.mean_keepdim(D::Minus1)?;
    centred.broadcast_div(&variance.affine(1.0, epsilon.into())?.sqrt()?)
}

/// The shape of a tensor with a number for each channel of `x`.
fn by_channel(x: &Tensor) -> Result<Vec<usize>> {
    let mut shape = vec![1; x.rank()];
    shape[1] = x.dim(1)?;
    Ok(shape)
}

/// Normalization over the axes from `axis` on.
pub(super) fn layer(x: &Tensor, scale: &Tensor, bias: Option<&Tensor>, axis: usize, epsilon: f32) -> Result<Tensor> {
    in_32_bits(x, |x| {
        let rows = normalized(&x.flatten_from(axis)?, epsilon)?.reshape(x.shape())?;
        let scaled = rows.broadcast_mul(&scale.to_dtype(DType::F32)?)?;
        match bias {
            Some(bias) => scaled.broadcast_add(&bias.to_dtype(DType::F32)?),
            None => Ok(scaled),
        }
    })
}

/// Normalization of groups of channels: x, scale and bias.
pub(super) fn groups([x, scale, bias]: [&Tensor; 3], groups: usize, epsilon: f32) -> Result<Tensor> {
    let shape = by_channel(x)?;
    in_32_bits(x, |x| {
        let rows = normalized(&x.reshape((x.dim(0)?, groups, ()))?, epsilon)?.reshape(x.shape())?;
        let [scale, bias] = [scale, bias].map(|tensor| tensor.to_dtype(DType::F32)?.reshape(&shape[..]));
        rows.broadcast_mul(&scale?)?.broadcast_add(&bias?)
    })
}

/// Normalization of each channel by given statistics: x, scale, bias, mean and variance.
pub(super) fn batch([x, scale, bias, mean, variance]: [&Tensor; 5], epsilon: f32) -> Result<Tensor> {
    let deviation = variance.to_dtype(DType::F32)?.affine(1.0, epsilon.into())?.sqrt()?;
    let factor = (scale.to_dtype(DType::F32)? / deviation)?;
    let offset = (bias.to_dtype(DType::F32)? - (mean.to_dtype(DType::F32)? * &factor)?)?;
    let shape = by_channel(x)?;
    let [factor, offset] = [factor, offset].map(|tensor| tensor.to_dtype(x.dtype())?.reshape(&shape[..]));
    x.broadcast_mul(&factor?)?.broadcast_add(&offset?)
}
