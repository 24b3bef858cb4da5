//! Reductions and normalizations.

use super::inputs::{Inferred, Inputs, axis_of, of, positive};
use crate::element::Element;
use crate::shapes::TensorType;

pub(super) fn reduce(axes: &[u32], keep: bool, inputs: &Inputs<'_>) -> Inferred {
    let [x] = inputs.exactly()?;
    of(x, Element::F32)?;
    if !axes.is_sorted_by(|one, next| one < next) {
        return Err(format!("axes are {axes:?}; each must be above the one before"));
    }
    for &axis in axes {
        axis_of(x, axis)?;
    }
    let is_reduced = |axis: usize| axes.iter().any(|&reduced| reduced as usize == axis);
    let kept = x.shape.iter().enumerate().filter(|(axis, _)| keep || !is_reduced(*axis));
    Ok(TensorType::f32(kept.map(|(axis, &size)| if is_reduced(axis) { 1 } else { size }).collect()))
}

pub(super) fn arg_max(axis: u32, inputs: &Inputs<'_>) -> Inferred {
    let [x] = inputs.exactly()?;
    of(x, Element::F32)?;
    let mut shape = x.shape.clone();
    shape.remove(axis_of(x, axis)?);
    Ok(TensorType { element: Element::I64, shape })
}

/// A result of the same shape, along an axis.
pub(super) fn along(axis: u32, inputs: &Inputs<'_>) -> Inferred {
    let [x] = inputs.exactly()?;
    of(x, Element::F32)?;
    axis_of(x, axis)?;
    Ok(x.clone())
}

pub(super) fn layer_norm(axis: u32, epsilon: f32, inputs: &Inputs<'_>) -> Inferred {
    let all = inputs.between(2, 3)?;
    all.iter().try_for_each(|tensor| of(tensor, Element::F32))?;
    positive("epsilon", epsilon)?;
    let normalized = &all[0].shape[axis_of(all[0], axis)?..];
    for tensor in &all[1..] {
        if tensor.shape != normalized {
            return Err(format!("takes scale and bias of the shape {normalized:?}, not {:?}", tensor.shape));
        }
    }
    Ok(all[0].clone())
}

pub(super) fn group_norm(groups: u32, epsilon: f32, inputs: &Inputs<'_>) -> Inferred {
    let all: [&TensorType; 3] = inputs.exactly()?;
    let channels = channels(&all)?;
    positive("epsilon", epsilon)?;
    if groups == 0 || !channels.is_multiple_of(groups as usize) {
        return Err(format!("{groups} groups do not divide {channels} channels"));
    }
    Ok(all[0].clone())
}

pub(super) fn batch_norm(epsilon: f32, momentum: Option<f32>, inputs: &Inputs<'_>) -> Inferred {
    let all: [&TensorType; 5] = inputs.exactly()?;
    channels(&all)?;
    positive("epsilon", epsilon)?;
    if let Some(momentum) = momentum.filter(|momentum| !(*momentum > 0.0 && *momentum <= 1.0)) {
        return Err(format!("momentum is {momentum}; it must be above 0 and at most 1"));
    }
    Ok(all[0].clone())
}

/// Number of channels of the first tensor, if the others have one number for each.
fn channels(all: &[&TensorType]) -> Result<usize, String> {
    all.iter().try_for_each(|tensor| of(tensor, Element::F32))?;
    let [_, channels, ..] = all[0].shape[..] else {
        return Err(format!("takes [batch, channels, ...], not {:?}", all[0].shape));
    };
    match all[1..].iter().find(|tensor| tensor.shape != [channels]) {
        None => Ok(channels),
        Some(other) => Err(format!("takes one number for each of {channels} channels, not {:?}", other.shape)),
    }
}

pub(super) fn dropout(rate: f32, inputs: &Inputs<'_>) -> Inferred {
    let [x] = inputs.exactly()?;
    of(x, Element::F32)?;
    if (0.0..1.0).contains(&rate) {
        Ok(x.clone())
    } else {
        Err(format!("rate is {rate}; it must be from 0 to below 1"))
    }
}
