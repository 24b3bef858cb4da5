//! A node as its cost sees it, and what it costs.

use super::numbers::{product, times};
use super::scratch::Scratch;
use crate::operation::Operation;
use crate::shapes::TensorType;

/// A node with the shapes of its inputs and of its first result.
pub(super) struct View<'a> {
    pub(super) operation: &'a Operation,
    pub(super) inputs: Vec<&'a TensorType>,
    pub(super) result: &'a TensorType,
    /// Which inputs need a gradient.
    pub(super) gradients: Vec<bool>,
}

impl<'a> View<'a> {
    /// The sizes of an input; empty if there is none.
    pub(super) fn shape(&self, input: usize) -> &'a [usize] {
        self.inputs.get(input).map_or(&[], |input| &input.shape)
    }

    /// The size of an input along an axis; 1 if there is none.
    pub(super) fn size(&self, input: usize, axis: usize) -> u64 {
        self.shape(input).get(axis).map_or(1, |size| *size as u64)
    }

    /// Number of elements of an input.
    pub(super) fn elements(&self, input: usize) -> u64 {
        product(self.shape(input))
    }

    /// 1 if an input needs a gradient, else 0.
    pub(super) fn gradient(&self, input: usize) -> u64 {
        u64::from(self.gradients.get(input) == Some(&true))
    }

    /// Number of inputs that need a gradient.
    pub(super) fn all_gradients(&self) -> u64 {
        self.gradients.iter().map(|needs| u64::from(*needs)).sum()
    }

    /// Number of elements before an axis, along it, and after it.
    pub(super) fn split(&self, axis: u32) -> [u64; 3] {
        let (shape, axis) = (self.shape(0), axis as usize);
        let [before, from] = shape.split_at_checked(axis).map_or([shape, &[]], |(before, from)| [before, from]);
        [product(before), from.first().map_or(1, |size| *size as u64), product(from.get(1..).unwrap_or_default())]
    }
}

/// What a node takes.
#[derive(Default)]
pub(super) struct NodeCost {
    /// Multiply-adds of the forward pass.
    pub(super) forward: u64,
    /// Multiply-adds of the backward pass.
    pub(super) backward: u64,
    /// Bytes that stay from the forward to the backward pass, beside the results.
    pub(super) saved: u64,
    /// Bytes that are allocated while the node is computed.
    pub(super) temporary: u64,
    pub(super) scratch: Scratch,
}

impl NodeCost {
    /// An operation whose gradient of each input costs as much as the operation.
    pub(super) fn of(node: &View<'_>, forward: u64) -> Self {
        Self { forward, backward: times([forward, node.all_gradients()]), ..Self::default() }
    }

    /// The same, with memory that is allocated while the node is computed.
    pub(super) fn with(node: &View<'_>, forward: u64, temporary: u64) -> Self {
        Self { temporary, ..Self::of(node, forward) }
    }
}
