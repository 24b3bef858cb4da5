//! Operations that select elements.

use super::inputs::{Inferred, Inputs, axis_of, of};
use crate::element::Element;
use crate::shapes::TensorType;
use crate::size::{Point, Size};

pub(super) fn slice(axis: u32, bounds: [Size; 2], step: i32, point: Point, inputs: &Inputs<'_>) -> Inferred {
    let [x] = inputs.exactly()?;
    let axis = axis_of(x, axis)?;
    let [Some(start), Some(end)] = bounds.map(|bound| bound.at(point)) else {
        return Err("a bound overflows".to_owned());
    };
    let Some((_, count)) = slice_positions(x.shape[axis], start, end, step) else {
        return Err(format!("selects nothing of an axis of {} from {start} to {end} by {step}", x.shape[axis]));
    };
    let mut shape = x.shape.clone();
    shape[axis] = count;
    Ok(TensorType { element: x.element, shape })
}

/// First position and number of positions that a slice selects along an axis of `size`; `None` if it selects nothing.
#[must_use]
pub fn slice_positions(size: usize, start: i64, end: i64, step: i32) -> Option<(usize, usize)> {
    // Sizes are below 2^28, and sums of 128 bits cannot overflow.
    let (size, step) = (size as i128, i128::from(step));
    let from_start = |position: i64| i128::from(position) + if position < 0 { size } else { 0 };
    let (least, most) = if step > 0 { (0, size) } else { (-1, size - 1) };
    let start = from_start(start).clamp(least, most);
    let end = from_start(end).clamp(least, most);
    let distance = if step > 0 { end - start } else { start - end };
    if distance <= 0 || step == 0 {
        return None;
    }
    let magnitude = step.abs();
    let count = (distance + magnitude - 1) / magnitude;
    Some((usize::try_from(start).ok()?, usize::try_from(count).ok()?))
}

/// The position that an integer names along an axis of `size`; negative integers count from the end.
#[must_use]
pub fn wrapped(position: i64, size: usize) -> Option<usize> {
    let position = if position < 0 { position.checked_add(i64::try_from(size).ok()?)? } else { position };
    usize::try_from(position).ok().filter(|position| *position < size)
}

pub(super) fn gather(axis: u32, inputs: &Inputs<'_>) -> Inferred {
    let [x, positions] = inputs.exactly()?;
    of(positions, Element::I64)?;
    let axis = axis_of(x, axis)?;
    let shape = [&x.shape[..axis], &positions.shape, &x.shape[axis + 1..]].concat();
    Ok(TensorType { element: x.element, shape })
}

pub(super) fn gather_elements(axis: u32, inputs: &Inputs<'_>) -> Inferred {
    let [x, positions] = inputs.exactly()?;
    of(positions, Element::I64)?;
    let axis = axis_of(x, axis)?;
    let fits = positions.rank() == x.rank()
        && (0..x.rank()).all(|index| index == axis || positions.shape[index] <= x.shape[index]);
    if !fits {
        return Err(format!("positions {:?} do not fit the shape {:?} along axis {axis}", positions.shape, x.shape));
    }
    Ok(TensorType { element: x.element, shape: positions.shape.clone() })
}
