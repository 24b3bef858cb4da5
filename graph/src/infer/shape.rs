//! Operations on shapes.

use super::inputs::{Inferred, Inputs, axis_of, broadcast, finite, of, size_at, sizes};
use crate::attributes::Padding;
use crate::element::Element;
use crate::shapes::{MAX_ELEMENTS, MAX_RANK, TensorType};
use crate::size::{Point, Size};

pub(super) fn reshape(to: &[Option<Size>], point: Point, inputs: &Inputs<'_>) -> Inferred {
    let [x] = inputs.exactly()?;
    if to.len() > MAX_RANK {
        return Err(format!("gives {} axes; at most {MAX_RANK} are allowed", to.len()));
    }
    let (mut shape, mut unknown, mut product) = (Vec::new(), None, 1_usize);
    for (axis, size) in to.iter().enumerate() {
        let size = match size {
            Some(size) => size_at(*size, point)?,
            None if unknown.replace(axis).is_some() => return Err("leaves two sizes open; one is allowed".to_owned()),
            None => 1,
        };
        product = product.saturating_mul(size);
        shape.push(size);
    }
    let elements = x.elements();
    match unknown {
        Some(axis) if elements.is_multiple_of(product) => shape[axis] = elements / product,
        None if elements == product => {}
        Some(_) | None => return Err(format!("the shape {:?} has no form of {shape:?}", x.shape)),
    }
    Ok(TensorType { element: x.element, shape })
}

pub(super) fn transpose(order: &[u32], inputs: &Inputs<'_>) -> Inferred {
    let [x] = inputs.exactly()?;
    let mut sorted = order.to_vec();
    sorted.sort_unstable();
    if sorted.len() != x.rank() || !(0..).zip(&sorted).all(|(axis, &found): (u32, _)| axis == found) {
        return Err(format!("order {order:?} does not name each of {} axes once", x.rank()));
    }
    Ok(TensorType { element: x.element, shape: order.iter().map(|&axis| x.shape[axis as usize]).collect() })
}

pub(super) fn expand(to: &[Size], point: Point, inputs: &Inputs<'_>) -> Inferred {
    let [x] = inputs.exactly()?;
    Ok(TensorType { element: x.element, shape: broadcast(&x.shape, &sizes(to, point)?)? })
}

pub(super) fn concat(axis: u32, inputs: &Inputs<'_>) -> Inferred {
    let all = inputs.between(1, usize::MAX)?;
    let first = all[0];
    let axis = axis_of(first, axis)?;
    let mut shape = first.shape.clone();
    for other in &all[1..] {
        of(other, first.element)?;
        let is_alike = other.rank() == first.rank()
            && (0..shape.len()).all(|index| index == axis || other.shape[index] == first.shape[index]);
        if !is_alike {
            return Err(format!("joins {:?} and {:?} along axis {axis}", first.shape, other.shape));
        }
        shape[axis] = shape[axis].saturating_add(other.shape[axis]);
    }
    Ok(TensorType { element: first.element, shape })
}

pub(super) fn pad(pads: &[(i32, i32)], with: Padding, inputs: &Inputs<'_>) -> Inferred {
    let [x] = inputs.exactly()?;
    of(x, Element::F32)?;
    if pads.len() != x.rank() {
        return Err(format!("pads has {} pairs for {} axes", pads.len(), x.rank()));
    }
    if let Padding::Constant(value) = with {
        // JSON has no number for the others.
        finite("the padding", value)?;
    }
    let mut shape = Vec::new();
    for (&size, &(before, after)) in x.shape.iter().zip(pads) {
        let reaches = match with {
            Padding::Constant(_) | Padding::Edge => true,
            Padding::Reflect => [before, after].iter().all(|&pad| i64::from(pad) < size as i64),
        };
        let padded = size as i64 + i64::from(before) + i64::from(after);
        // What is cut is inside.
        let left = size as i64 + i64::from(before.min(0)) + i64::from(after.min(0));
        match usize::try_from(padded) {
            Ok(padded) if reaches && left >= 1 && padded >= 1 => shape.push(padded),
            Ok(_) | Err(_) => return Err(format!("pads ({before}, {after}) do not fit an axis of {size}")),
        }
    }
    Ok(TensorType::f32(shape))
}

pub(super) fn resize(to: &[Size], point: Point, inputs: &Inputs<'_>) -> Inferred {
    let [x] = inputs.exactly()?;
    of(x, Element::F32)?;
    if !(3..=4).contains(&x.rank()) || to.len() != x.rank() - 2 {
        return Err(format!("gives {} spatial sizes to the shape {:?}", to.len(), x.shape));
    }
    Ok(TensorType::f32([&x.shape[..2], &sizes(to, point)?].concat()))
}

pub(super) fn range(start: Size, end: Size, step: i32, point: Point, inputs: &Inputs<'_>) -> Inferred {
    let [] = inputs.exactly()?;
    let (Some(start), Some(end)) = (start.at(point), end.at(point)) else {
        return Err("a bound overflows".to_owned());
    };
    if step == 0 {
        return Err("step is 0".to_owned());
    }
    let (distance, step) = (i128::from(end) - i128::from(start), i128::from(step));
    let count = distance / step + i128::from(distance % step != 0 && (distance > 0) == (step > 0));
    match usize::try_from(count) {
        Ok(count) if (1..=MAX_ELEMENTS).contains(&count) => {
            Ok(TensorType { element: Element::I64, shape: vec![count] })
        }
        Ok(_) | Err(_) => Err(format!("has {count} integers; 1 to {MAX_ELEMENTS} are allowed")),
    }
}

pub(super) fn fill(shape: &[Size], point: Point, inputs: &Inputs<'_>) -> Inferred {
    let [value] = inputs.exactly()?;
    if value.elements() != 1 {
        return Err(format!("takes a single number, not the shape {:?}", value.shape));
    }
    if value.rank() > shape.len() {
        return Err(format!("takes a single number of at most {} axes, not the shape {:?}", shape.len(), value.shape));
    }
    Ok(TensorType { element: value.element, shape: sizes(shape, point)? })
}

pub(super) fn triangle(inputs: &Inputs<'_>) -> Inferred {
    let [x] = inputs.exactly()?;
    if x.rank() < 2 {
        return Err(format!("takes matrices, not the shape {:?}", x.shape));
    }
    Ok(x.clone())
}
