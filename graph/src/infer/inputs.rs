//! Inputs and attributes of a node, checked.

use crate::element::Element;
use crate::shapes::{MAX_ELEMENTS, TensorType};
use crate::size::{Point, Size};

/// Types of a node's results, or what is wrong with the node.
pub(super) type Inferred = Result<TensorType, String>;

/// The types of a node's inputs.
pub(super) struct Inputs<'a>(pub(super) &'a [&'a TensorType]);

impl<'a> Inputs<'a> {
    /// All of them, if they are this many.
    pub(super) fn exactly<const N: usize>(&self) -> Result<[&'a TensorType; N], String> {
        self.0.try_into().map_err(|_| format!("takes {N} inputs, not {}", self.0.len()))
    }

    /// Checks that there are so many.
    pub(super) fn between(&self, least: usize, most: usize) -> Result<&'a [&'a TensorType], String> {
        if (least..=most).contains(&self.0.len()) {
            Ok(self.0)
        } else {
            Err(format!("takes {least} to {most} inputs, not {}", self.0.len()))
        }
    }
}

/// Checks that the elements are of a type.
pub(super) fn of(tensor: &TensorType, element: Element) -> Result<(), String> {
    if tensor.element == element {
        Ok(())
    } else {
        Err(format!("takes {}, not {}", element.plural(), tensor.element.plural()))
    }
}

/// An axis of a tensor as an index.
pub(super) fn axis_of(tensor: &TensorType, axis: u32) -> Result<usize, String> {
    let axis = axis as usize;
    if axis < tensor.rank() { Ok(axis) } else { Err(format!("axis {axis} is not below the rank {}", tensor.rank())) }
}

/// Checks that an attribute is a number in the range of 32-bit floats.
pub(super) fn finite(name: &str, value: f32) -> Result<(), String> {
    if value.is_finite() { Ok(()) } else { Err(format!("{name} is {value}; it must be finite")) }
}

/// Checks that an attribute is a positive number.
pub(super) fn positive(name: &str, value: f32) -> Result<(), String> {
    if value.is_finite() && value > 0.0 { Ok(()) } else { Err(format!("{name} is {value}; it must be above 0")) }
}

/// The shape that two shapes broadcast to, as in NumPy.
pub(super) fn broadcast(one: &[usize], other: &[usize]) -> Result<Vec<usize>, String> {
    let rank = one.len().max(other.len());
    let size = |shape: &[usize], axis: usize| (axis + shape.len()).checked_sub(rank).map_or(1, |axis| shape[axis]);
    let sizes = (0..rank).map(|axis| match (size(one, axis), size(other, axis)) {
        (one, other) if one == other => Some(one),
        (1, size) | (size, 1) => Some(size),
        (_, _) => None,
    });
    sizes.collect::<Option<_>>().ok_or_else(|| format!("shapes {one:?} and {other:?} do not broadcast"))
}

/// Sizes for a batch and a length, each at least 1.
pub(super) fn sizes(sizes: &[Size], point: Point) -> Result<Vec<usize>, String> {
    sizes.iter().map(|size| size_at(*size, point)).collect()
}

pub(super) fn size_at(size: Size, point: Point) -> Result<usize, String> {
    let found = size.at(point).and_then(|size| usize::try_from(size).ok());
    found.filter(|size| (1..=MAX_ELEMENTS).contains(size)).ok_or_else(|| {
        let Point { batch, length } = point;
        format!("a size is not between 1 and {MAX_ELEMENTS} for a batch of {batch} and a length of {length}")
    })
}
