//! Elements by position.

use candle_core::{Result, Tensor};

use crate::train::graph::candle::failure::Failure;
use crate::train::graph::candle::value::filled;
use crate::train::graph::ops::positions;

/// The elements at these positions along an axis; `fill` for a position of `None`.
pub(super) fn take(x: &Tensor, axis: usize, positions: &[Option<usize>], fill: f32) -> Result<Tensor> {
    if let Some(Some(first)) = positions.first().copied()
        && positions.iter().zip(first..).all(|(position, next)| *position == Some(next))
    {
        return x.narrow(axis, first, positions.len());
    }
    let (size, mut x) = (x.dim(axis)?, x.contiguous()?);
    if positions.contains(&None) {
        let mut shape = x.dims().to_vec();
        shape[axis] = 1;
        let outside = filled(fill, &x, &shape)?.contiguous()?;
        x = Tensor::cat(&[&x, &outside], axis)?;
    }
    let index = indices(positions.iter().map(|position| position.unwrap_or(size)));
    x.index_select(&Tensor::from_vec(index, positions.len(), x.device())?, axis)
}

/// Positions for candle. An axis has less than 2^28 elements.
fn indices(positions: impl Iterator<Item = usize>) -> Vec<u32> {
    positions.map(|position| u32::try_from(position).unwrap_or(u32::MAX)).collect()
}

/// Elements by integers, which replace an axis by those of the integers.
pub(super) fn gather(
    x: &Tensor,
    axis: usize,
    integers: &[i64],
    result: &[usize],
) -> std::result::Result<Tensor, Failure> {
    let found = positions(integers, x.dim(axis)?).map_err(Failure::Values)?;
    let index = Tensor::from_vec(indices(found.into_iter()), integers.len(), x.device())?;
    Ok(x.contiguous()?.index_select(&index, axis)?.reshape(result)?)
}

/// For each of the integers, the element at this position along an axis.
pub(super) fn gather_elements(
    x: &Tensor,
    axis: usize,
    integers: &[i64],
    shape: &[usize],
) -> std::result::Result<Tensor, Failure> {
    let found = positions(integers, x.dim(axis)?).map_err(Failure::Values)?;
    let index = Tensor::from_vec(indices(found.into_iter()), shape, x.device())?;
    let mut x = x.clone();
    for (other, size) in shape.iter().enumerate().filter(|(other, _)| *other != axis) {
        x = x.narrow(other, 0, *size)?;
    }
    Ok(x.contiguous()?.gather(&index, axis)?)
}
