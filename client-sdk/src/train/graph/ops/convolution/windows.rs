//! The windows of an image: which of its elements a convolution multiplies at each place.

use graph::Convolution;

use crate::train::cpu::dense::panel_width;
use crate::train::cpu::gemm::{RowProduct, Rows};
use crate::train::graph::context::{Context, vectorized};
use crate::train::graph::kernels::packing::{Matrix, aligned, pack_panel};
use crate::train::graph::kernels::product::{Into, Left, Scratch};

/// Sizes along the two spatial axes. One spatial axis is a height of 1.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) height: usize,
    pub(super) width: usize,
}

impl Sizes {
    /// Number of elements.
    pub(super) fn area(self) -> usize {
        self.height * self.width
    }
}

/// The windows of an image, and the channels on either side.
#[derive(Clone, Copy, Debug)]
pub(super) struct Windows {
    pub(super) image: Sizes,
    /// Positions of the window.
    pub(super) places: Sizes,
    pub(super) kernel: Sizes,
    pub(super) stride: Sizes,
    pub(super) dilation: Sizes,
    /// Zeros before the image.
    pub(super) before: Sizes,
    /// Channels of a group of the image.
    pub(super) channels: usize,
}

impl Windows {
    /// Windows on images of these spatial sizes, at so many places.
    pub(super) fn new(
        conv: &Convolution,
        image: &[usize],
        places: &[usize],
        kernel: &[usize],
        channels: usize,
    ) -> Self {
        let sizes = |sizes: &[usize], default| match *sizes {
            [height, width] => Sizes { height, width },
            [width] => Sizes { height: default, width },
            _ => Sizes { height: default, width: default },
        };
        let list = |numbers: &[u32]| numbers.iter().map(|&number| number as usize).collect::<Vec<_>>();
        let before: Vec<usize> = conv.pads.iter().map(|pads| pads.0 as usize).collect();
        Self {
            image: sizes(image, 1),
            places: sizes(places, 1),
            kernel: sizes(kernel, 1),
            stride: sizes(&list(&conv.strides), 1),
            dilation: sizes(&list(&conv.dilations), 1),
            before: sizes(&before, 0),
            channels,
        }
    }

    pub(super) fn places(&self) -> usize {
        self.places.height * self.places.width
    }

    /// Numbers of a window.
    pub(super) fn depth(&self) -> usize {
        self.channels * self.kernel.height * self.kernel.width
    }

    /// Numbers of a group of an image.
    pub(super) fn image(&self) -> usize {
        self.channels * self.image.height * self.image.width
    }

    /// Whether each window is a pixel: all windows of an image are the image.
    pub(super) fn is_pointwise(&self) -> bool {
        let is_one = |sizes: Sizes| sizes.area() == 1;
        is_one(self.kernel)
            && is_one(self.stride)
            && self.before.height + self.before.width == 0
            && self.places.height == self.image.height
            && self.places.width == self.image.width
    }

    /// Row of the image at a kernel's row and a place's row, if it is inside.
    #[inline(always)]
    fn row(&self, kernel: usize, place: usize) -> Option<usize> {
        let padded = place * self.stride.height + kernel * self.dilation.height;
        padded.checked_sub(self.before.height).filter(|row| *row < self.image.height)
    }

    /// Places in a row whose windows have the kernel's column inside the image, and the image's column at the first.
    #[inline(always)]
    fn columns(&self, kernel: usize) -> (usize, usize, usize) {
        let offset = kernel * self.dilation.width;
        let first = self.before.width.saturating_sub(offset).div_ceil(self.stride.width);
        let end = (self.image.width + self.before.width).saturating_sub(offset).div_ceil(self.stride.width);
        let (first, end) = (first.min(self.places.width), end.min(self.places.width));
        let column = (first * self.stride.width + offset).saturating_sub(self.before.width);
        (first, end.max(first), column)
    }

    /// Calls `visit` for each run of places in a row: (number within the window, first place, first element of the
    /// image, length of the run).
    #[inline(always)]
    pub(super) fn runs(&self, mut visit: impl FnMut(usize, usize, usize, usize)) {
        let plane = self.image.height * self.image.width;
        for index in 0..self.depth() {
            let column = index % self.kernel.width;
            let row = index / self.kernel.width % self.kernel.height;
            let channel = index / (self.kernel.width * self.kernel.height);
            let (first, end, left) = self.columns(column);
            if first == end {
                continue;
            }
            for place in 0..self.places.height {
                let Some(y) = self.row(row, place) else { continue };
                let start = channel * plane + y * self.image.width + left;
                visit(index, place * self.places.width + first, start, end - first);
            }
        }
    }

    /// Number of panels of places, and places of each.
    fn panels(&self) -> (usize, usize) {
        let width = panel_width(self.places());
        (self.places().div_ceil(width), width)
    }

    /// Numbers of all windows in panels.
    fn size(&self) -> usize {
        let (panels, width) = self.panels();
        panels * self.depth() * width
    }

    /// Calls `visit` for each run within a panel: first element in the panels, first element of the image, length.
    #[inline(always)]
    fn pieces(&self, mut visit: impl FnMut(usize, usize, usize)) {
        let (_, width) = self.panels();
        // A shift instead of a division: widths are powers of two.
        let (shift, depth, step) = (width.trailing_zeros(), self.depth(), self.stride.width);
        self.runs(
            #[inline(always)]
            |index: usize, place: usize, start: usize, length: usize| {
                let mut done = 0;
                while done < length {
                    let at = place + done;
                    let column = at & (width - 1);
                    let count = (width - column).min(length - done);
                    visit(((at >> shift) * depth + index) * width + column, start + done * step, count);
                    done += count;
                }
            },
        );
    }

    /// The windows as panels of places: in each, a row for each number of a window, with a column for each place.
    #[inline(always)]
    fn unfold(&self, image: &[f32], windows: &mut [f32]) {
        let step = self.stride.width;
        windows.fill(0.0);
        self.pieces(
            #[inline(always)]
            |target: usize, source: usize, count: usize| {
                let target = &mut windows[target..target + count];
                if step == 1 {
                    target
                        .iter_mut()
                        .zip(&image[source..source + count])
                        .for_each(|(target, source)| *target = *source);
                } else {
                    let source = image[source..].iter().step_by(step);
                    target.iter_mut().zip(source).for_each(|(target, source)| *target = *source);
                }
            },
        );
    }

    /// Adds windows back to the image, the reverse of [`Self::unfold`].
    #[inline(always)]
    fn fold(&self, windows: &[f32], image: &mut [f32]) {
        let step = self.stride.width;
        self.pieces(
            #[inline(always)]
            |source: usize, target: usize, count: usize| {
                let source = &windows[source..source + count];
                if step == 1 {
                    image[target..target + count].iter_mut().zip(source).for_each(|(target, source)| *target += source);
                } else {
                    let target = image[target..].iter_mut().step_by(step);
                    target.zip(source).for_each(|(target, source)| *target += source);
                }
            },
        );
    }

    /// `y (+)= left * windows(image)`, with rows of a window's numbers on the left.
    pub(super) fn multiply(&self, left: Left<'_>, image: &[f32], into: Into, y: &mut [f32], context: &mut Context) {
        let Context { arch, scratch, windows, .. } = context;
        let windows = aligned(windows, self.size());
        vectorized(
            *arch,
            &mut *windows,
            #[inline(always)]
            |windows| self.unfold(image, windows),
        );
        scratch.on_panels(*arch, left, windows, self.places(), into, y);
    }

    /// Adds `transposed(weights) * y` to the image, window by window. `weights` and `y` have a row for each channel.
    pub(super) fn spread(&self, left: Left<'_>, y: &[f32], image: &mut [f32], context: &mut Context) {
        let Context { arch, scratch, windows, .. } = context;
        let (_, width) = self.panels();
        let y = Matrix::dense(y, left.length, self.places());
        let windows = aligned(windows, self.size());
        for (index, part) in windows.chunks_exact_mut(self.depth() * width).enumerate() {
            let panel = aligned(&mut scratch.panel, left.length * width);
            pack_panel(y, index * width, width, panel);
            left.times(*arch, panel, width, part, width);
        }
        vectorized(
            *arch,
            image,
            #[inline(always)]
            |image| self.fold(windows, image),
        );
    }

    /// Adds the sum over pairs of images and results of `y * transposed(windows(image))` to the gradient of weights.
    pub(super) fn add_gradient<'a>(
        &self,
        pairs: impl Iterator<Item = (&'a [f32], &'a [f32])>,
        gradient: &mut [f32],
        context: &mut Context,
    ) {
        let Context { arch, scratch: Scratch { panel, result, sum, .. }, windows, .. } = context;
        let ((panels, width), depth) = (self.panels(), self.depth());
        let outputs = gradient.len() / depth;
        let columns = panel_width(outputs);
        let all = outputs.next_multiple_of(columns);
        let windows = aligned(windows, self.size());
        let sum = aligned(sum, depth * all);
        sum.fill(0.0);
        let panel = aligned(panel, panels * width * columns);
        for (image, y) in pairs {
            vectorized(
                *arch,
                &mut *windows,
                #[inline(always)]
                |windows| self.unfold(image, windows),
            );
            for (index, sum) in sum.chunks_exact_mut(depth * columns).enumerate() {
                let (used, rest) = panel.split_at_mut(self.places() * columns);
                rest.fill(0.0);
                let y = Matrix::dense(y, outputs, self.places()).transposed();
                pack_panel(y, index * columns, columns, used);
                let part = aligned(result, depth * columns);
                let product = RowProduct {
                    a: windows,
                    rows: Rows::even(width),
                    segments: panels,
                    segment_step: depth * width,
                    length: width,
                    b: panel,
                    width: columns,
                    c: &mut *part,
                    c_step: columns,
                    m: depth,
                };
                product.run(*arch);
                vectorized(
                    *arch,
                    sum,
                    #[inline(always)]
                    |sum| sum.iter_mut().zip(&*part).for_each(|(sum, part)| *sum += part),
                );
            }
        }
        for (output, gradient) in gradient.chunks_exact_mut(depth).enumerate() {
            let start = output / columns * depth * columns + output % columns;
            let column = sum[start..].iter().step_by(columns);
            gradient.iter_mut().zip(column).for_each(|(gradient, sum)| *gradient += sum);
        }
    }
}
