//! Splits into sequences, of which single parts are read: PyTorch's `chunk` and `split` as they are exported. Each read
//! part becomes a slice.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::file::{Shared, Stored};
use crate::data::{self, Data};
use crate::proto::{self, Attribute, Node};

/// A split: what is split, its axis, and the bounds of its parts.
struct Split {
    input: String,
    axis: i64,
    parts: Parts,
}

/// Sizes of the parts of a split.
enum Parts {
    /// All have this size; the last one may be smaller.
    Equal(i64),
    /// The position after each of them; several splits share it.
    Each(Rc<Vec<i64>>),
}

impl Parts {
    /// First position of a part, and the position after it.
    fn bounds(&self, index: usize) -> Option<(i64, i64)> {
        match self {
            Self::Equal(size) => {
                let start = size.checked_mul(i64::try_from(index).ok()?)?;
                Some((start, start.checked_add(*size)?))
            }
            Self::Each(ends) => {
                let start = index.checked_sub(1).map_or(Some(0), |before| ends.get(before).copied())?;
                Some((start, *ends.get(index)?))
            }
        }
    }
}

/// The position after each part of these sizes, as far as they are numbers of 64 bits.
fn ends(sizes: &[i64]) -> Vec<i64> {
    let add = |end: &mut i64, size: &i64| {
        *end = end.checked_add(*size)?;
        Some(*end)
    };
    sizes.iter().scan(0, add).collect()
}

/// Replaces every `SequenceAt` of a `SplitToSequence`, both with known integers, by a `Slice`. A split whose parts are all
/// replaced goes; other nodes stay as they are, and are rejected by name later.
pub(super) fn unroll(graph: &mut proto::Graph, stored: &[Stored]) {
    let mut integers: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    for stored in stored {
        if let Shared::Others(Data::I64(values)) = &stored.data {
            integers.insert(stored.name.clone(), values.clone());
        }
    }
    for node in graph.nodes.iter().filter(|node| node.operator == "Constant") {
        if let (Some(values), [output]) = (constant(node), &node.outputs[..]) {
            integers.insert(output.clone(), values);
        }
    }
    let mut splits = BTreeMap::new();
    let mut shared: BTreeMap<String, Rc<Vec<i64>>> = BTreeMap::new();
    for node in graph.nodes.iter().filter(|node| node.operator == "SplitToSequence" && node.domain.is_empty()) {
        let (Some(input), Some(split), [output]) = (node.inputs.first(), node.inputs.get(1), &node.outputs[..]) else {
            continue;
        };
        let parts = match integers.get(split).map(Vec::as_slice) {
            // A single number is the size of each part, as is one size of a list of one.
            Some([size]) => Parts::Equal(*size),
            Some(sizes) => Parts::Each(Rc::clone(shared.entry(split.clone()).or_insert_with(|| Rc::new(ends(sizes))))),
            None => continue,
        };
        let axis = attribute(node, "axis").map_or(0, |attribute| attribute.integer);
        splits.insert(output.clone(), Split { input: input.clone(), axis, parts });
    }
    for node in graph.nodes.iter_mut().filter(|node| node.operator == "SequenceAt" && node.domain.is_empty()) {
        let [sequence, index] = &node.inputs[..] else { continue };
        let (Some(split), Some([index])) = (splits.get(sequence), integers.get(index).map(Vec::as_slice)) else {
            continue;
        };
        if let Some((start, end)) = usize::try_from(*index).ok().and_then(|index| split.parts.bounds(index)) {
            node.attributes = vec![list("starts", start), list("ends", end), list("axes", split.axis)];
            node.inputs = vec![split.input.clone()];
            "Slice".clone_into(&mut node.operator);
        }
    }
    let outputs = graph.outputs.iter().map(|output| &output.name);
    let read: BTreeSet<String> = graph.nodes.iter().flat_map(|node| &node.inputs).chain(outputs).cloned().collect();
    graph.nodes.retain(|node| match &node.outputs[..] {
        [output] if splits.contains_key(output) => read.contains(output),
        _ => true,
    });
}

/// The integers of a `Constant`.
fn constant(node: &Node) -> Option<Vec<i64>> {
    if let Some(attribute) = attribute(node, "value_int") {
        return Some(vec![attribute.integer]);
    }
    if let Some(attribute) = attribute(node, "value_ints") {
        return Some(attribute.integers.clone());
    }
    match data::decode(attribute(node, "value")?.tensor.clone()?) {
        Ok((_, Data::I64(values))) => Some(values),
        Ok((_, Data::F32(_) | Data::Bool(_))) | Err(_) => None,
    }
}

fn attribute<'a>(node: &'a Node, name: &str) -> Option<&'a Attribute> {
    node.attributes.iter().find(|attribute| attribute.name == name)
}

/// An attribute with one integer in a list.
fn list(name: &str, value: i64) -> Attribute {
    Attribute { name: name.to_owned(), integers: vec![value], ..Attribute::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_sizes_that_overflow_have_no_bounds() {
        let parts = Parts::Each(Rc::new(ends(&[3, 4, i64::MAX, 5])));
        assert_eq!(parts.bounds(0), Some((0, 3)));
        assert_eq!(parts.bounds(1), Some((3, 7)));
        assert_eq!(parts.bounds(2), None);
        assert_eq!(Parts::Equal(i64::MAX).bounds(2), None);
        assert_eq!(Parts::Equal(4).bounds(2), Some((8, 12)));
    }
}
