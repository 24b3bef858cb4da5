//! What the ways back of a convolution share.

use crate::train::graph::kernels::elements::Into;

/// A group of a convolution on the way back.
pub(super) struct Group<'a> {
    pub(super) x: &'a [f32],
    pub(super) dy: &'a [f32],
    pub(super) weights: &'a [f32],
    /// Position of the group's first weight.
    pub(super) first: usize,
    /// Numbers of the group's parts of images.
    pub(super) numbers: Vec<usize>,
    /// What to do with the gradients of images and of weights; `None` for one that is not needed.
    pub(super) into: [Option<Into>; 2],
}
