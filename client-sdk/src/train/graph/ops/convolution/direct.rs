//! Convolutions without copies of windows: they read images with channels last in place.
//!
//! For a row of the kernel, a window's pixels are adjacent. Images are copied once for each pass, which costs less than
//! their windows: a window of 3 x 3 holds each number nine times.

use super::frames::{Frame, to_planes};
use super::windows::{Sizes, Windows};
use crate::train::cpu::dense::panel_width;
use crate::train::cpu::gemm::{OuterProduct, RowProduct, Rows};
use crate::train::graph::context::{Context, Frames, vectorized};
use crate::train::graph::kernels::packing::aligned;

/// Fewest channels on the side of a product's columns. Panels have 16 columns, so fewer waste most of the work.
const FEWEST: usize = 8;

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

    /// Computes the results of the images with these numbers.
    pub(super) fn forward(&self, x: &[f32], numbers: &[usize], weights: &[f32], y: &mut [f32], context: &mut Context) {
        let Windows { kernel, channels, dilation, .. } = self.windows;
        let Frames { image: memory, weights: packed, result, .. } = &mut context.frames;
        let (places, depth) = (self.windows.places(), self.windows.depth());
        let (width, all) = panels(self.outputs);
        let packed = aligned(packed, depth * all);
        packed.fill(0.0);
        for (output, row) in weights.chunks_exact(depth).enumerate() {
            let panel = &mut packed[output / width * depth * width + output % width..];
            for (index, weight) in row.iter().enumerate() {
                let (channel, position) = (index / kernel.area(), index % kernel.area());
                panel[(position * channels + channel) * width] = *weight;
            }
        }
        let frame = aligned(memory, self.image.len());
        frame.fill(0.0);
        let result = aligned(result, places * width);
        for &number in numbers {
            let image = &x[number * self.windows.image()..][..self.windows.image()];
            vectorized(
                context.arch,
                &mut *frame,
                #[inline(always)]
                |frame| self.image.fill(image, self.windows.image, frame),
            );
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
                let count = y.len() / places;
                vectorized(
                    context.arch,
                    (y, &*result),
                    #[inline(always)]
                    |(y, result): (&mut [f32], &[f32])| {
                        to_planes(result, width, count, |plane, place, value| y[plane * places + place] = value);
                    },
                );
            }
        }
    }

    /// The frame of a result's gradient with the border that the gradient of the image needs.
    fn delta(&self) -> Frame {
        let Windows { kernel, dilation, image, before, .. } = self.windows;
        let reach = Sizes { height: (kernel.height - 1) * dilation.height, width: (kernel.width - 1) * dilation.width };
        Frame {
            size: Sizes { height: image.height + reach.height, width: image.width + reach.width },
            before: Sizes { height: reach.height - before.height, width: reach.width - before.width },
            channels: panels(self.outputs).1,
        }
    }

    /// Whether [`Self::image_gradient`] applies: strides of 1, padding within the kernel's reach, and enough channels.
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

    /// Adds the gradient of the weights from the images with these numbers.
    pub(super) fn weight_gradient(
        &self,
        (x, dy): (&[f32], &[f32]),
        numbers: &[usize],
        dw: &mut [f32],
        context: &mut Context,
    ) {
        let Frames { image: memory, delta: delta_memory, sum, .. } = &mut context.frames;
        let (arch, places, size) = (context.arch, self.windows.places(), self.windows.image());
        let (_, channels) = panels(self.outputs);
        let delta = Frame { size: self.windows.places, before: Sizes { height: 0, width: 0 }, channels };
        let (frame, delta_frame) = (aligned(memory, self.image.len()), aligned(delta_memory, delta.len()));
        frame.fill(0.0);
        delta_frame.fill(0.0);
        let sum = aligned(sum, self.windows.depth() * channels);
        sum.fill(0.0);
        for &number in numbers {
            let (image, dy) = (&x[number * size..][..size], &dy[number * self.outputs * places..]);
            vectorized(
                arch,
                (&mut *frame, &mut *delta_frame),
                #[inline(always)]
                |(frame, delta_frame): (&mut [f32], &mut [f32])| {
                    self.image.fill(image, self.windows.image, frame);
                    delta.fill(&dy[..self.outputs * places], self.windows.places, delta_frame);
                },
            );
            self.weight_products(frame, &delta, delta_frame, sum, arch);
        }
        self.add_weights(sum, dw);
    }

    /// Adds an image's share of the gradient of the weights, in panels.
    fn weight_products(&self, image: &[f32], delta: &Frame, dy: &[f32], sum: &mut [f32], arch: pulp::Arch) {
        let Windows { kernel, channels, dilation, places, .. } = self.windows;
        let (width, _) = panels(self.outputs);
        let Rows { group_step, step, .. } = self.rows();
        let m = kernel.width * channels;
        for (index, sum) in sum.chunks_exact_mut(self.windows.depth() * width).enumerate() {
            for (row, c) in sum.chunks_exact_mut(m * width).enumerate() {
                let product = OuterProduct {
                    a: image,
                    a_start: row * dilation.height * self.image.line(),
                    a_segment: group_step,
                    a_step: step,
                    b: dy,
                    b_start: delta.pixel(0, 0) + index * width,
                    b_segment: delta.line(),
                    b_step: delta.channels,
                    segments: places.height,
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

    /// Adds panels of sums to the gradient of the weights.
    fn add_weights(&self, sum: &[f32], dw: &mut [f32]) {
        let (area, channels, depth) = (self.windows.kernel.area(), self.windows.channels, self.windows.depth());
        let (width, _) = panels(self.outputs);
        for (output, dw) in dw.chunks_exact_mut(depth).enumerate() {
            let panel = &sum[output / width * depth * width + output % width..];
            for (index, dw) in dw.iter_mut().enumerate() {
                let (channel, position) = (index / area, index % area);
                *dw += panel[(position * channels + channel) * width];
            }
        }
    }

    /// The kernel turned by 180 degrees with inputs and outputs exchanged, as panels.
    fn flip<'a>(&self, delta: &Frame, weights: &[f32], packed: &'a mut Vec<f32>) -> &'a [f32] {
        let (area, channels, depth) = (self.windows.kernel.area(), self.windows.channels, self.windows.depth());
        let (width, all) = panels(channels);
        let rows = area * delta.channels;
        let packed = aligned(packed, rows * all);
        packed.fill(0.0);
        for (output, row) in weights.chunks_exact(depth).enumerate() {
            for (index, weight) in row.iter().enumerate() {
                let (channel, position) = (index / area, index % area);
                let panel = &mut packed[channel / width * rows * width + channel % width..];
                panel[((area - 1 - position) * delta.channels + output) * width] = *weight;
            }
        }
        packed
    }

    /// Adds the gradient of the images with these numbers: a convolution of the result's gradient with the flipped kernel.
    pub(super) fn image_gradient(
        &self,
        dy: &[f32],
        numbers: &[usize],
        weights: &[f32],
        dx: &mut [f32],
        context: &mut Context,
    ) {
        let Windows { kernel, channels, dilation, image, .. } = self.windows;
        let Frames { delta: memory, weights: packed, result, .. } = &mut context.frames;
        let (arch, delta, plane, size) = (context.arch, self.delta(), image.area(), self.windows.image());
        let results = self.outputs * self.windows.places();
        let (width, _) = panels(channels);
        let flipped = self.flip(&delta, weights, packed);
        let (frame, result) = (aligned(memory, delta.len()), aligned(result, plane * width));
        frame.fill(0.0);
        for &number in numbers {
            let dy = &dy[number * results..][..results];
            vectorized(
                arch,
                &mut *frame,
                #[inline(always)]
                |frame| delta.fill(dy, self.windows.places, frame),
            );
            let panels = flipped.chunks_exact(kernel.area() * delta.channels * width);
            for (panel, dx) in panels.zip(dx[number * size..][..size].chunks_mut(width * plane)) {
                let product = RowProduct {
                    a: frame,
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
                vectorized(
                    arch,
                    (dx, &*result),
                    #[inline(always)]
                    |(dx, result): (&mut [f32], &[f32])| {
                        let count = dx.len() / plane;
                        to_planes(result, width, count, |channel, place, value| dx[channel * plane + place] += value);
                    },
                );
            }
        }
    }
}
