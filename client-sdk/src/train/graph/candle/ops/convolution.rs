//! Convolutions and transposed convolutions over one or two spatial axes.

use candle_core::{Result, Tensor};
use graph::Convolution;

use super::take::take;
use super::windows::{Axis, both, image};
use crate::train::graph::candle::failure::missing;

/// A convolution: images, weights and bias.
pub(super) fn conv(
    conv: &Convolution,
    [x, weights]: [&Tensor; 2],
    bias: Option<&Tensor>,
    result: &[usize],
) -> Result<Tensor> {
    let axes: Vec<Axis> = (0..conv.strides.len())
        .map(|axis| Axis {
            size: x.dims()[2 + axis],
            kernel: weights.dims()[2 + axis],
            stride: conv.strides[axis] as usize,
            dilation: conv.dilations[axis] as usize,
            pads: (conv.pads[axis].0 as usize, conv.pads[axis].1 as usize),
            places: result[2 + axis],
        })
        .collect();
    let y = correlated(&image(x)?, &image(weights)?, both(&axes)?, conv.groups as usize)?;
    biased(&y, bias)?.reshape(result)
}

/// A transposed convolution, as a convolution of the image with zeros between its positions, with the kernel backwards.
pub(super) fn transposed(
    conv: &Convolution,
    [x, weights]: [&Tensor; 2],
    bias: Option<&Tensor>,
    result: &[usize],
) -> Result<Tensor> {
    let (mut x, mut weights, groups) = (image(x)?, image(weights)?, conv.groups as usize);
    let mut axes = Vec::new();
    // Of an image with one spatial axis, the other one was added.
    let first = 4 - conv.strides.len();
    for axis in 0..conv.strides.len() {
        let (stride, dilation) = (conv.strides[axis] as usize, conv.dilations[axis] as usize);
        let (before, at, places) = (conv.pads[axis].0 as usize, first + axis, result[2 + axis]);
        let (size, kernel) = (x.dim(at)?, weights.dim(at)?);
        let reach = (kernel - 1) * dilation;
        let source = |position: usize| {
            let distance = (position + before).checked_sub(reach)?;
            (distance.is_multiple_of(stride) && distance / stride < size).then_some(distance / stride)
        };
        let spread: Vec<_> = (0..places + reach).map(source).collect();
        x = take(&x, at, &spread, 0.0)?;
        weights = take(&weights, at, &(0..kernel).rev().map(Some).collect::<Vec<_>>(), 0.0)?;
        axes.push(Axis { size: spread.len(), kernel, stride: 1, dilation, pads: (0, 0), places });
    }
    let [channels, outputs, height, width] = *weights.dims() else { return Err(missing()) };
    let weights = weights.reshape((groups, channels / groups, outputs, height, width))?.permute([0, 2, 1, 3, 4])?;
    let weights = weights.reshape((groups * outputs, channels / groups, height, width))?;
    let y = correlated(&x, &weights, both(&axes)?, groups)?;
    biased(&y, bias)?.reshape(result)
}

fn biased(y: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    match bias {
        Some(bias) => y.broadcast_add(&bias.reshape((1, (), 1, 1))?),
        None => Ok(y.clone()),
    }
}

/// The convolution of an image with two spatial axes.
fn correlated(x: &Tensor, weights: &Tensor, [rows, columns]: [Axis; 2], groups: usize) -> Result<Tensor> {
    let is_even = rows.stride == columns.stride && rows.dilation == columns.dilation;
    if groups != 1 || !is_even {
        return by_windows(x, weights, [rows, columns], groups);
    }
    let (stride, dilation, pad) = (rows.stride, rows.dilation, rows.pads.0);
    let weights = weights.contiguous()?;
    if stride == 1 && [rows.pads, columns.pads] == [(pad, pad); 2] {
        return x.contiguous()?.conv2d(&weights, pad, 1, dilation, 1);
    }
    // The gradient of candle's is right for an image that the windows cover to its end.
    let x = take(&take(x, 2, &rows.covered(), 0.0)?, 3, &columns.covered(), 0.0)?;
    x.contiguous()?.conv2d(&weights, 0, stride, dilation, 1)
}

/// The same for groups of channels, and for strides and dilations that differ: a product of weights and windows.
fn by_windows(x: &Tensor, weights: &Tensor, [rows, columns]: [Axis; 2], groups: usize) -> Result<Tensor> {
    let [batch, channels, ..] = *x.dims() else { return Err(missing()) };
    let outputs = weights.dim(0)?;
    let windows = take(&take(x, 2, &rows.windows(), 0.0)?, 3, &columns.windows(), 0.0)?;
    let split = [batch, groups, channels / groups, rows.places, rows.kernel, columns.places, columns.kernel];
    // Of each group, a row for each number of a window, and a column for each window of each image.
    let windows = windows.reshape(&split[..])?.permute(vec![1, 2, 4, 6, 0, 3, 5])?;
    let inner = channels / groups * rows.kernel * columns.kernel;
    let windows = windows.reshape((groups, inner, batch * rows.places * columns.places))?;
    let y = weights.reshape((groups, outputs / groups, inner))?.matmul(&windows)?;
    y.reshape((outputs, batch, rows.places, columns.places))?.transpose(0, 1)
}
