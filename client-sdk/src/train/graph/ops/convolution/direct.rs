//! Convolutions without copies of windows: they read images with channels last in place.
//!
//! For a row of the kernel, a window's pixels are adjacent. Images are copied once for each pass, which costs less than
//! their windows: a window of 3 x 3 holds each number nine times.

use pulp::Arch;

use super::frames::Frame;
use super::group::Group;
use super::windows::{Sizes, Windows};
use crate::train::cpu::dense::panel_width;
use crate::train::cpu::gemm::{OuterProduct, RowProduct, Rows};
use crate::train::graph::context::{Context, Frames, Gradients};
use crate::train::graph::kernels::packing::aligned;
use crate::train::graph::kernels::product::Into;
use crate::train::graph::kernels::transpose::Transposition;

/// Fewest channels on the side of a product's columns. Panels have 16 columns, so fewer waste most of the work.
const FEWEST: usize = 8;
/// Pixels whose products are added to the gradient of the weights at once: their channels stay in the first-level cache.
const TOGETHER: usize = 64;

/// A convolution of one group that is computed in place.
#[derive(Clone, Copy)]
pub(super) struct Direct {
    windows: Windows,
    /// Channels of the result.
    outputs: usize,
    image: Frame,
}

/// Columns of panels for so many channels, and those of all panels.
fn panels(channels: usize) -> (usize, usize) {
    let width = panel_width(channels);
    (width, channels.next_multiple_of(width))
}

impl Direct {
    /// The convolution, if it is faster this way; `windows` and the numbers of channels are those of a group.
    pub(super) fn new(windows: Windows, outputs: usize) -> Option<Self> {
        let Sizes { height, width } = windows.kernel;
        let is_adjacent = windows.dilation.width == 1 || width == 1;
        if height * width == 1 || !is_adjacent || outputs < FEWEST {
            return None;
        }
        let along = |places: usize, stride: usize, kernel: usize, dilation: usize| {
            (places - 1) * stride + (kernel - 1) * dilation + 1
        };
        let size = Sizes {
            height: along(windows.places.height, windows.stride.height, height, windows.dilation.height),
            width: along(windows.places.width, windows.stride.width, width, windows.dilation.width),
        };
        // An image below its border, as by a kernel that reads padding alone, keeps to the windows.
        let is_inside = size.height > windows.before.height && size.width > windows.before.width;
        let image = Frame { size, before: windows.before, channels: windows.channels };
        is_inside.then_some(Self { windows, outputs, image })
    }

    /// Distances of places in the image's frame.
    fn rows(&self) -> Rows {
        let Windows { places, stride, .. } = self.windows;
        Rows {
            start: 0,
            group: places.width,
            group_step: stride.height * self.image.line(),
            step: stride.width * self.image.channels,
        }
    }

    /// Calls `visit` with each channel, and the transposition of its weights to a panel of so many outputs.
    fn each_channel(&self, outputs: usize, mut visit: impl FnMut(usize, Transposition)) {
        let Windows { kernel, channels, .. } = self.windows;
        let (width, _) = panels(self.outputs);
        let from_step = self.windows.depth();
        let of = Transposition { rows: outputs, columns: kernel.area(), from_step, to_step: channels * width };
        (0..channels).for_each(|channel| visit(channel, of));
    }

    /// The weights as panels of outputs, with a row for each position of the kernel and channel.
    fn pack<'a>(&self, weights: &[f32], packed: &'a mut Vec<f32>) -> &'a [f32] {
        let (depth, (width, all)) = (self.windows.depth(), panels(self.outputs));
        let packed = aligned(packed, depth * all);
        packed.fill(0.0);
        for (panel, weights) in packed.chunks_exact_mut(depth * width).zip(weights.chunks(depth * width)) {
            self.each_channel(weights.len() / depth, |channel, of| {
                of.run(&weights[channel * of.columns..], &mut panel[channel * width..], Into::Replace);
            });
        }
        packed
    }

    /// Takes panels of the gradient of the weights, the reverse of [`Self::pack`].
    fn take_weights(&self, sums: &[f32], dw: &mut [f32], into: Into) {
        let (depth, (width, _)) = (self.windows.depth(), panels(self.outputs));
        for (panel, dw) in sums.chunks_exact(depth * width).zip(dw.chunks_mut(depth * width)) {
            self.each_channel(dw.len() / depth, |channel, of| {
                let Transposition { rows, columns, from_step, to_step } = of;
                let back = Transposition { rows: columns, columns: rows, from_step: to_step, to_step: from_step };
                back.run(&panel[channel * width..], &mut dw[channel * columns..], into);
            });
        }
    }

    /// Computes the results of the images with these numbers.
    pub(super) fn forward(&self, x: &[f32], numbers: &[usize], weights: &[f32], y: &mut [f32], context: &mut Context) {
        let Windows { kernel, channels, dilation, .. } = self.windows;
        let Frames { image: memory, weights: packed, result, .. } = &mut context.frames;
        let (places, depth, size) = (self.windows.places(), self.windows.depth(), self.windows.image());
        let (width, _) = panels(self.outputs);
        let packed = self.pack(weights, packed);
        let frame = aligned(memory, self.image.len());
        frame.fill(0.0);
        let result = aligned(result, places * width);
        for &number in numbers {
            self.image.fill(&x[number * size..][..size], self.windows.image, frame);
            let y = &mut y[number * self.outputs * places..][..self.outputs * places];
            for (panel, y) in packed.chunks_exact(depth * width).zip(y.chunks_mut(width * places)) {
                let product = RowProduct {
                    a: frame,
                    rows: self.rows(),
                    segments: kernel.height,
                    segment_step: dilation.height * self.image.line(),
                    length: kernel.width * channels,
                    b: panel,
                    width,
                    c: &mut *result,
                    c_step: width,
                    m: places,
                };
                product.run(context.arch);
                to_planes(result, places, width, y, Into::Replace);
            }
        }
    }

    /// Whether [`Self::backward`] computes the gradient of the images: strides of 1, padding within the kernel's reach, and
    /// enough channels.
    pub(super) fn has_image_gradient(&self) -> bool {
        let Windows { places, kernel, dilation, image, before, stride, channels } = self.windows;
        let fits = |places: usize, image: usize, before: usize, reach: usize| {
            before <= reach && reach - before + places <= image + reach
        };
        stride.height == 1
            && stride.width == 1
            && channels >= FEWEST
            && fits(places.height, image.height, before.height, (kernel.height - 1) * dilation.height)
            && fits(places.width, image.width, before.width, (kernel.width - 1) * dilation.width)
    }

    /// The frame of a result's gradient, with the border that the gradient of the image needs.
    fn delta(&self, has_border: bool) -> Frame {
        let Windows { kernel, dilation, image, before, places, .. } = self.windows;
        let channels = panels(self.outputs).1;
        if !has_border {
            return Frame { size: places, before: Sizes { height: 0, width: 0 }, channels };
        }
        let reach = Sizes { height: (kernel.height - 1) * dilation.height, width: (kernel.width - 1) * dilation.width };
        Frame {
            size: Sizes { height: image.height + reach.height, width: image.width + reach.width },
            before: Sizes { height: reach.height - before.height, width: reach.width - before.width },
            channels,
        }
    }

    /// Computes the gradients of a group's weights, and of its images if [`Self::has_image_gradient`].
    pub(super) fn backward(&self, group: &Group<'_>, gradients: &mut Gradients<'_>, context: &mut Context) {
        let Group { x, dy, weights, first, into: [into_images, into_weights], .. } = *group;
        let into_images = into_images.filter(|_| self.has_image_gradient());
        let Frames { image, delta: delta_memory, weights: packed, result, sum } = &mut context.frames;
        let (arch, size, results) = (context.arch, self.windows.image(), self.outputs * self.windows.places());
        let delta = self.delta(into_images.is_some());
        let flipped = if into_images.is_some() { self.flip(&delta, weights, packed, result) } else { &[] };
        let (frame, dy_frame) = (aligned(image, self.image.len()), aligned(delta_memory, delta.len()));
        let sum = aligned(sum, self.windows.depth() * delta.channels);
        for zeros in [&mut *frame, &mut *dy_frame, &mut *sum] {
            zeros.fill(0.0);
        }
        for &number in &group.numbers {
            delta.fill(&dy[number * results..][..results], self.windows.places, dy_frame);
            if into_weights.is_some() {
                self.image.fill(&x[number * size..][..size], self.windows.image, frame);
                self.weight_products(frame, &delta, dy_frame, sum, arch);
            }
            if let (Some(into), Some(dx)) = (into_images, gradients.of(0)) {
                self.image_products(
                    (&delta, dy_frame),
                    flipped,
                    result,
                    (into, &mut dx[number * size..][..size]),
                    arch,
                );
            }
        }
        if let (Some(into), Some(dw)) = (into_weights, gradients.of(1)) {
            self.take_weights(sum, &mut dw[first..first + weights.len()], into);
        }
    }

    /// Adds an image's share of the gradient of the weights, in panels.
    fn weight_products(&self, image: &[f32], delta: &Frame, dy: &[f32], sum: &mut [f32], arch: Arch) {
        let Windows { kernel, channels, dilation, places, .. } = self.windows;
        let (width, _) = panels(self.outputs);
        let Rows { group_step, step, .. } = self.rows();
        let m = kernel.width * channels;
        let together = (TOGETHER / places.width).max(1);
        for first in (0..places.height).step_by(together) {
            for (index, sum) in sum.chunks_exact_mut(self.windows.depth() * width).enumerate() {
                for (row, c) in sum.chunks_exact_mut(m * width).enumerate() {
                    let product = OuterProduct {
                        a: image,
                        a_start: row * dilation.height * self.image.line() + first * group_step,
                        a_segment: group_step,
                        a_step: step,
                        b: dy,
                        b_start: delta.pixel(first, 0) + index * width,
                        b_segment: delta.line(),
                        b_step: delta.channels,
                        segments: together.min(places.height - first),
                        length: places.width,
                        m,
                        width,
                        c,
                        accumulate: true,
                    };
                    product.run(arch);
                }
            }
        }
    }

    /// The kernel turned by 180 degrees with inputs and outputs exchanged, as panels.
    fn flip<'a>(&self, delta: &Frame, weights: &[f32], packed: &'a mut Vec<f32>, turned: &mut Vec<f32>) -> &'a [f32] {
        let (area, channels, depth) = (self.windows.kernel.area(), self.windows.channels, self.windows.depth());
        let (width, all) = panels(channels);
        let rows = area * delta.channels;
        let packed = aligned(packed, rows * all);
        packed.fill(0.0);
        let turned = aligned(turned, depth);
        let by_position = Transposition { rows: channels, columns: area, from_step: area, to_step: channels };
        for (output, weights) in weights.chunks_exact(depth).enumerate() {
            by_position.run(weights, turned, Into::Replace);
            for (position, weights) in turned.chunks_exact(channels).rev().enumerate() {
                let row = (position * delta.channels + output) * width;
                for (index, weights) in weights.chunks(width).enumerate() {
                    packed[index * rows * width + row..][..weights.len()].copy_from_slice(weights);
                }
            }
        }
        packed
    }

    /// Computes the gradient of an image: a convolution of the result's gradient with the flipped kernel.
    fn image_products(
        &self,
        (delta, dy): (&Frame, &[f32]),
        flipped: &[f32],
        result: &mut Vec<f32>,
        (into, dx): (Into, &mut [f32]),
        arch: Arch,
    ) {
        let Windows { kernel, channels, dilation, image, .. } = self.windows;
        let (plane, (width, _)) = (image.area(), panels(channels));
        let result = aligned(result, plane * width);
        let panels = flipped.chunks_exact(kernel.area() * delta.channels * width);
        for (panel, dx) in panels.zip(dx.chunks_mut(width * plane)) {
            let product = RowProduct {
                a: dy,
                rows: Rows { start: 0, group: image.width, group_step: delta.line(), step: delta.channels },
                segments: kernel.height,
                segment_step: dilation.height * delta.line(),
                length: kernel.width * delta.channels,
                b: panel,
                width,
                c: &mut *result,
                c_step: width,
                m: plane,
            };
            product.run(arch);
            to_planes(result, plane, width, dx, into);
        }
    }
}

/// Takes the planes of channels from a panel of so many pixels.
fn to_planes(panel: &[f32], pixels: usize, width: usize, planes: &mut [f32], into: Into) {
    let columns = planes.len() / pixels;
    Transposition { rows: pixels, columns, from_step: width, to_step: pixels }.run(panel, planes, into);
}
