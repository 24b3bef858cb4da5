//! Reductions, and functions along an axis.

use candle_core::{D, Result, Tensor};
use graph::Reduction;

use crate::train::graph::candle::value::{filled, in_32_bits};

/// The first maximum along an axis, which alone gets the gradient: candle's gives it to all. The axis stays.
pub(super) fn first_maximum(x: &Tensor, axis: usize) -> Result<Tensor> {
    let x = x.contiguous()?;
    x.gather(&x.detach().argmax_keepdim(axis)?, axis)
}

/// The axes that are reduced as the last one, of all their elements.
fn rows(x: &Tensor, axes: &[u32]) -> Result<Tensor> {
    let is_reduced = |axis: &usize| axes.iter().any(|&reduced| reduced as usize == *axis);
    let (reduced, mut order): (Vec<usize>, Vec<usize>) = (0..x.rank()).partition(is_reduced);
    let kept = order.len();
    order.extend(reduced);
    let x = x.permute(order)?.contiguous()?;
    // Without axes, each element is a row.
    if kept == x.rank() { x.unsqueeze(kept) } else { x.flatten_from(kept) }
}

/// The product of each row, without a division.
fn product(rows: Tensor) -> Result<Tensor> {
    let mut rows = rows;
    loop {
        let count = rows.dim(D::Minus1)?;
        if count <= 1 {
            return Ok(rows);
        }
        let half = count / 2;
        let pairs = (rows.narrow(D::Minus1, 0, half)? * rows.narrow(D::Minus1, half, half)?)?;
        rows = if count % 2 == 0 {
            pairs
        } else {
            Tensor::cat(&[&pairs, &rows.narrow(D::Minus1, count - 1, 1)?.contiguous()?], D::Minus1)?
        };
    }
}

/// The root of the sum of squares of each row. The gradient at 0 is 0.
fn norm(rows: &Tensor) -> Result<Tensor> {
    let squares = rows.sqr()?.sum_keepdim(D::Minus1)?;
    let (zero, one) = (filled(0.0, &squares, squares.dims())?, filled(1.0, &squares, squares.dims())?);
    let is_zero = squares.eq(&zero)?;
    let root = is_zero.where_cond(&one, &squares)?.sqrt()?;
    is_zero.where_cond(&zero, &root)
}

pub(super) fn reduce(by: Reduction, axes: &[u32], x: &Tensor, result: &[usize]) -> Result<Tensor> {
    in_32_bits(x, |x| {
        let rows = rows(x, axes)?;
        let last = rows.rank() - 1;
        let reduced = match by {
            Reduction::Sum => rows.sum_keepdim(last)?,
            Reduction::Mean => rows.mean_keepdim(last)?,
            Reduction::Max => first_maximum(&rows, last)?,
            Reduction::Min => first_maximum(&rows.neg()?, last)?.neg()?,
            Reduction::Product => product(rows)?,
            Reduction::Norm => norm(&rows)?,
        };
        reduced.reshape(result)
    })
}

/// The distance from the largest along an axis, at most 0.
fn below_largest(x: &Tensor, axis: usize) -> Result<Tensor> {
    x.broadcast_sub(&x.detach().max_keepdim(axis)?)
}

pub(super) fn softmax(x: &Tensor, axis: usize) -> Result<Tensor> {
    in_32_bits(x, |x| {
        let powers = below_largest(x, axis)?.exp()?;
        powers.broadcast_div(&powers.sum_keepdim(axis)?)
    })
}

pub(super) fn log_softmax(x: &Tensor, axis: usize) -> Result<Tensor> {
    in_32_bits(x, |x| {
        let x = below_largest(x, axis)?;
        x.broadcast_sub(&x.exp()?.sum_keepdim(axis)?.log()?)
    })
}

/// The running sum: adds the elements 1, 2, 4 and so on before each one. candle's is a product with a matrix.
pub(super) fn cum_sum(x: &Tensor, axis: usize) -> Result<Tensor> {
    in_32_bits(x, |x| {
        let (size, mut sums, mut distance) = (x.dim(axis)?, x.contiguous()?, 1);
        while distance < size {
            let mut shape = x.dims().to_vec();
            shape[axis] = distance;
            let before = filled(0.0, &sums, &shape)?.contiguous()?;
            let earlier = sums.narrow(axis, 0, size - distance)?.contiguous()?;
            sums = (&sums + Tensor::cat(&[&before, &earlier], axis)?)?;
            distance *= 2;
        }
        Ok(sums)
    })
}
