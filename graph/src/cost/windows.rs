//! Cost of convolutions, which are products with the windows of an image, and of pooling.

use super::numbers::{product, times};
use super::scratch::{Scratch, padded, panel};
use super::view::{NodeCost, View};
use crate::attributes::{Convolution, Pool, PoolKind};

/// The windows of an image and a group.
struct Windows {
    /// Numbers of a window.
    depth: u64,
    /// Positions of the window.
    places: u64,
    /// Channels on the other side.
    channels: u64,
}

pub(super) fn conv(node: &View<'_>, of: &Convolution) -> NodeCost {
    let groups = u64::from(of.groups.max(1));
    let window = node.shape(1).get(1..).unwrap_or_default();
    let windows = Windows {
        depth: product(window),
        places: product(node.result.shape.get(2..).unwrap_or_default()),
        channels: node.size(1, 0) / groups,
    };
    let forward = times([product(&node.result.shape), windows.depth]);
    // Each channel by itself is convolved without windows in memory.
    let is_depthwise = groups > 1 && window.first() == Some(&1);
    let scratch = if is_depthwise { Scratch::default() } else { windows.scratch() };
    let cost = of_product(node, forward, scratch);
    let frames = if is_depthwise { 0 } else { frames(node, of, windows.channels) };
    NodeCost { temporary: cost.temporary.saturating_add(times([frames, 4])), ..cost }
}

/// Numbers of images with channels last and a border, and of weights in panels, from which a convolution is computed in
/// place.
fn frames(node: &View<'_>, of: &Convolution, outputs: u64) -> u64 {
    let [channels, kernel @ ..] = node.shape(1).get(1..).unwrap_or_default() else { return 0 };
    let (image, places) = (node.shape(0).get(2..).unwrap_or_default(), node.result.shape.get(2..).unwrap_or_default());
    let (mut frame, mut delta) = (*channels as u64, padded(outputs));
    for (axis, &kernel) in kernel.iter().enumerate() {
        let at = |sizes: &[usize]| sizes.get(axis).copied().unwrap_or(1) as u64;
        let attribute = |numbers: &[u32]| u64::from(numbers.get(axis).copied().unwrap_or(1));
        let reach = times([kernel.saturating_sub(1) as u64, attribute(&of.dilations)]);
        let steps = times([at(places).saturating_sub(1), attribute(&of.strides)]);
        frame = times([frame, steps.saturating_add(reach).saturating_add(1)]);
        delta = times([delta, at(image).saturating_add(reach)]);
    }
    let area = product(kernel);
    let packed = times([area, padded(outputs), padded(*channels as u64)]);
    [frame, delta, packed, packed].into_iter().fold(0, u64::saturating_add)
}

pub(super) fn transposed(node: &View<'_>, groups: u32) -> NodeCost {
    let windows = Windows {
        depth: product(node.shape(1).get(1..).unwrap_or_default()),
        places: product(node.shape(0).get(2..).unwrap_or_default()),
        channels: node.size(0, 1) / u64::from(groups.max(1)),
    };
    of_product(node, times([node.elements(0), windows.depth]), windows.scratch())
}

/// A product whose gradients of image and weights cost as much, and that of the bias a sum.
fn of_product(node: &View<'_>, forward: u64, scratch: Scratch) -> NodeCost {
    let bias = times([node.gradient(2), product(&node.result.shape)]);
    let backward = times([forward, node.gradient(0) + node.gradient(1)]).saturating_add(bias);
    // The transposed weights of a group.
    NodeCost { forward, backward, temporary: times([node.elements(1), 4]), scratch, ..NodeCost::default() }
}

impl Windows {
    fn scratch(&self) -> Scratch {
        let Self { depth, places, channels } = *self;
        let rows = depth.max(channels);
        Scratch {
            windows: times([depth, padded(places)]),
            panel: times([padded(places), panel(channels)]).max(times([channels, panel(places)])),
            result: times([rows, panel(channels).max(panel(places))]),
            sum: times([depth, padded(channels)]),
            ..Scratch::default()
        }
    }
}

/// Each place visits the part of its window that is inside the image.
pub(super) fn pool(node: &View<'_>, pool: &Pool) -> NodeCost {
    let kernel = &pool.kernel;
    let sizes = node.shape(0).get(2..).unwrap_or_default();
    let inside = kernel
        .iter()
        .zip(sizes)
        .fold(1, |product, (&kernel, &size)| times([product, u64::from(kernel).min(size as u64)]));
    let forward = times([product(&node.result.shape), inside]);
    let places = node.result.shape.iter().skip(2).fold(1_u64, |sum, &size| sum.saturating_add(size as u64));
    // A range of positions and a count for each place along an axis.
    NodeCost {
        forward,
        backward: times([forward, node.gradient(0)]),
        // The position of each maximum.
        saved: if pool.by == PoolKind::Max { times([product(&node.result.shape), 4]) } else { 0 },
        temporary: times([places, 24]),
        ..NodeCost::default()
    }
}
