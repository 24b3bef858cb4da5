//! Convolutions and pooling.

use super::inputs::{Inferred, Inputs, of};
use crate::attributes::{Convolution, Pool};
use crate::element::Element;
use crate::shapes::{MAX_ELEMENTS, TensorType};

/// Batch, channels and spatial sizes of an input of 1 or 2 spatial axes.
fn image(x: &TensorType) -> Result<(usize, usize, &[usize]), String> {
    of(x, Element::F32)?;
    match x.shape[..] {
        [batch, channels, ref spatial @ ..] if (1..=2).contains(&spatial.len()) => Ok((batch, channels, spatial)),
        _ => Err(format!("takes [batch, channels, length] or [batch, channels, height, width], not {:?}", x.shape)),
    }
}

/// Checks that an attribute has one positive number for each axis.
fn per_axis(name: &str, values: &[u32], axes: usize) -> Result<(), String> {
    if values.len() != axes {
        return Err(format!("{name} has {} numbers for {axes} axes", values.len()));
    }
    if values.iter().all(|&value| value >= 1 && value as usize <= MAX_ELEMENTS) {
        Ok(())
    } else {
        Err(format!("{name} is {values:?}; each must be from 1 to {MAX_ELEMENTS}"))
    }
}

/// Checks that an attribute has padding for each axis.
fn padding(pads: &[(u32, u32)], axes: usize) -> Result<(), String> {
    if pads.len() != axes {
        return Err(format!("pads has {} pairs for {axes} axes", pads.len()));
    }
    let is_bounded = |pad: u32| pad as usize <= MAX_ELEMENTS;
    if pads.iter().all(|&(before, after)| is_bounded(before) && is_bounded(after)) {
        Ok(())
    } else {
        Err(format!("pads is {pads:?}; each must be at most {MAX_ELEMENTS}"))
    }
}

/// Kernel, weights' first two sizes, and bias of a convolution.
fn weights<'a>(
    of_conv: &Convolution,
    inputs: &Inputs<'a>,
) -> Result<(&'a TensorType, &'a TensorType, &'a [usize]), String> {
    let all = inputs.between(2, 3)?;
    let (x, weights) = (all[0], all[1]);
    let (_, _, spatial) = image(x)?;
    of(weights, Element::F32)?;
    if weights.rank() != x.rank() {
        return Err(format!("takes weights of rank {}, not the shape {:?}", x.rank(), weights.shape));
    }
    per_axis("strides", &of_conv.strides, spatial.len())?;
    per_axis("dilations", &of_conv.dilations, spatial.len())?;
    padding(&of_conv.pads, spatial.len())?;
    Ok((x, weights, &weights.shape[2..]))
}

/// Checks the bias of a convolution.
fn bias(inputs: &Inputs<'_>, outputs: usize) -> Result<(), String> {
    let Some(bias) = inputs.0.get(2) else { return Ok(()) };
    of(bias, Element::F32)?;
    if bias.shape == [outputs] {
        Ok(())
    } else {
        Err(format!("takes a bias of {outputs}, not the shape {:?}", bias.shape))
    }
}

/// Size of a kernel with the distances between its positions; `None` if it overflows.
fn extent(kernel: usize, dilation: u32) -> Option<usize> {
    kernel.checked_sub(1)?.checked_mul(dilation as usize)?.checked_add(1)
}

/// Size of an axis with its padding; `None` if it overflows.
fn padded(size: usize, (before, after): (u32, u32)) -> Option<usize> {
    size.checked_add(before as usize)?.checked_add(after as usize)
}

pub(super) fn conv(conv: &Convolution, inputs: &Inputs<'_>) -> Inferred {
    let (x, weights, kernel) = weights(conv, inputs)?;
    let (batch, channels, spatial) = image(x)?;
    let (outputs, groups) = (weights.shape[0], conv.groups as usize);
    if groups == 0 || !channels.is_multiple_of(groups) || !outputs.is_multiple_of(groups) {
        return Err(format!("{groups} groups do not divide {channels} channels and {outputs} outputs"));
    }
    if weights.shape[1] != channels / groups {
        return Err(format!("takes weights of {} channels, not {}", channels / groups, weights.shape[1]));
    }
    bias(inputs, outputs)?;
    let mut shape = vec![batch, outputs];
    for (axis, (&size, &kernel)) in spatial.iter().zip(kernel).enumerate() {
        let (padded, extent) = (padded(size, conv.pads[axis]), extent(kernel, conv.dilations[axis]));
        let Some(rest) = padded.zip(extent).and_then(|(padded, extent)| padded.checked_sub(extent)) else {
            let pads = conv.pads[axis];
            return Err(format!("the kernel is larger than spatial axis {axis}, {size} with the padding {pads:?}"));
        };
        shape.push(rest / conv.strides[axis] as usize + 1);
    }
    unfolded(&weights.shape[1..], &shape[2..])?;
    Ok(TensorType::f32(shape))
}

/// Bounds the windows of one image, which are computed as one matrix.
fn unfolded(window: &[usize], places: &[usize]) -> Result<(), String> {
    let numbers = window.iter().chain(places).fold(1_usize, |product, &size| product.saturating_mul(size));
    if numbers <= MAX_ELEMENTS {
        return Ok(());
    }
    Err(format!("has windows of {numbers} numbers for one image and group; at most {MAX_ELEMENTS} are allowed"))
}

pub(super) fn transposed(conv: &Convolution, output_padding: &[u32], inputs: &Inputs<'_>) -> Inferred {
    let (x, weights, kernel) = weights(conv, inputs)?;
    let (batch, channels, spatial) = image(x)?;
    let groups = conv.groups as usize;
    if groups == 0 || !channels.is_multiple_of(groups) || weights.shape[0] != channels {
        return Err(format!("{groups} groups and weights {:?} do not fit {channels} channels", weights.shape));
    }
    let Some(outputs) = weights.shape[1].checked_mul(groups) else {
        return Err(format!("{groups} groups of {} channels are too many", weights.shape[1]));
    };
    bias(inputs, outputs)?;
    if output_padding.len() != spatial.len() {
        return Err(format!("output_padding has {} numbers for {} axes", output_padding.len(), spatial.len()));
    }
    let mut shape = vec![batch, outputs];
    for (axis, (&size, &kernel)) in spatial.iter().zip(kernel).enumerate() {
        let (stride, dilation) = (conv.strides[axis], conv.dilations[axis]);
        if output_padding[axis] >= stride.max(dilation) {
            return Err(format!("output_padding {} is not below the stride or dilation", output_padding[axis]));
        }
        // The same as the size of a kernel of so many positions, and of the kernel itself at the last one.
        let last = extent(size, stride).and_then(|last| last.checked_add(output_padding[axis] as usize));
        let whole = last.zip(extent(kernel, dilation)).and_then(|(last, extent)| (last - 1).checked_add(extent));
        let left = whole.zip(padded(0, conv.pads[axis])).and_then(|(whole, pads)| whole.checked_sub(pads));
        let Some(left) = left.filter(|left| (1..=MAX_ELEMENTS).contains(left)) else {
            let pads = conv.pads[axis];
            return Err(format!("pads {pads:?} leave nothing of spatial axis {axis}, or more than {MAX_ELEMENTS}"));
        };
        shape.push(left);
    }
    unfolded(&weights.shape[1..], spatial)?;
    Ok(TensorType::f32(shape))
}

pub(super) fn pool(pool: &Pool, inputs: &Inputs<'_>) -> Inferred {
    let [x] = inputs.exactly()?;
    let (batch, channels, spatial) = image(x)?;
    per_axis("kernel", &pool.kernel, spatial.len())?;
    per_axis("strides", &pool.strides, spatial.len())?;
    padding(&pool.pads, spatial.len())?;
    let mut shape = vec![batch, channels];
    for (axis, &size) in spatial.iter().enumerate() {
        let (kernel, stride) = (pool.kernel[axis] as usize, pool.strides[axis] as usize);
        let (before, after) = (pool.pads[axis].0 as usize, pool.pads[axis].1 as usize);
        let Some(inside) = padded(size, pool.pads[axis]) else {
            return Err(format!("pads {:?} are too many", pool.pads[axis]));
        };
        if before >= kernel || after >= kernel {
            return Err(format!("pads {:?} are not below the window of {kernel}", pool.pads[axis]));
        }
        let Some(rest) = inside.checked_sub(kernel) else {
            return Err(format!("the window of {kernel} is larger than spatial axis {axis} with its padding"));
        };
        let windows = if pool.ceil { rest.div_ceil(stride) } else { rest / stride };
        // A window has to begin inside, or in the padding before.
        shape.push(windows.min((inside - after - 1) / stride) + 1);
    }
    Ok(TensorType::f32(shape))
}
