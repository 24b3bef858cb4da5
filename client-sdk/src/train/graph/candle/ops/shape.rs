//! Operations on shapes.

use candle_core::{Result, Tensor};
use graph::{Padding, Resampling, ResizeCoordinates, slice_positions};

use super::take::take;
use crate::train::graph::candle::failure::missing;
use crate::train::graph::candle::value::filled;
use crate::train::graph::ops::{is_in_triangle, padded_positions, resized_positions};

/// The inputs one after the other.
pub(super) fn concat(inputs: &[Tensor], axis: usize) -> Result<Tensor> {
    let inputs: Vec<Tensor> = inputs.iter().map(Tensor::contiguous).collect::<Result<_>>()?;
    Tensor::cat(&inputs, axis)
}

/// Every `step`th element between two bounds.
pub(super) fn slice(x: &Tensor, axis: usize, bounds: [Option<i64>; 2], step: i32) -> Result<Tensor> {
    let [Some(start), Some(end)] = bounds else { return Err(missing()) };
    let Some((first, count)) = slice_positions(x.dim(axis)?, start, end, step) else { return Err(missing()) };
    let distance = step.unsigned_abs() as usize;
    let position = |index: usize| {
        if step > 0 { first + index * distance } else { first - index * distance }
    };
    take(x, axis, &(0..count).map(|index| Some(position(index))).collect::<Vec<_>>(), 0.0)
}

pub(super) fn pad(x: &Tensor, pads: &[(i32, i32)], with: Padding) -> Result<Tensor> {
    let fill = match with {
        Padding::Constant(value) => value,
        Padding::Edge | Padding::Reflect => 0.0,
    };
    let mut y = x.clone();
    for (axis, &pads) in pads.iter().enumerate().filter(|(_, pads)| **pads != (0, 0)) {
        y = take(&y, axis, &padded_positions(x.dim(axis)?, pads, with), fill)?;
    }
    Ok(y)
}

/// Images in other sizes, one axis after the other.
pub(super) fn resize(x: &Tensor, result: &[usize], by: Resampling, coordinates: ResizeCoordinates) -> Result<Tensor> {
    let mut y = x.clone();
    for (axis, &to) in result.iter().enumerate().skip(2) {
        let sources = resized_positions(x.dim(axis)?, to, by, coordinates);
        let at = |number: usize| sources.iter().map(|source| Some(source[number].0)).collect::<Vec<_>>();
        let first = take(&y, axis, &at(0), 0.0)?;
        y = match by {
            Resampling::Nearest => first,
            Resampling::Linear => {
                let second = take(&y, axis, &at(1), 0.0)?;
                let mut shape = vec![1; y.rank()];
                shape[axis] = to;
                let weights = |number: usize| {
                    let weights: Vec<f32> = sources.iter().map(|source| source[number].1).collect();
                    Tensor::from_vec(weights, &shape[..], y.device())?.to_dtype(y.dtype())
                };
                (first.broadcast_mul(&weights(0)?)? + second.broadcast_mul(&weights(1)?)?)?
            }
        };
    }
    Ok(y)
}

/// Zeros outside a triangle of the last two axes.
pub(super) fn triangle(x: &Tensor, upper: bool, k: i32) -> Result<Tensor> {
    let [.., rows, columns] = *x.dims() else { return Err(missing()) };
    let kept: Vec<u8> = (0..rows * columns).map(|at| is_in_triangle(at, &[rows, columns], upper, k).into()).collect();
    let kept = Tensor::from_vec(kept, (rows, columns), x.device())?.broadcast_as(x.shape())?;
    kept.where_cond(x, &filled(0.0, x, x.dims())?)
}
