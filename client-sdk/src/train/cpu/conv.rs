//! A 5x5 convolution that keeps the image's size, with ReLU and 2x2 max-pooling, one image at a time.
//!
//! Images are channels-last with a border of two zero pixels, so that the convolution reads them in place: for each
//! line of the kernel, one pixel's neighbours are adjacent numbers. One image's data stays in the second-level cache.

use pulp::Arch;

use super::dense::Dense;
use super::elementwise;
use super::gemm::{OuterProduct, RowProduct, Rows, WIDE};

/// Side of the kernel.
pub(super) const KERNEL: usize = 5;
/// Zero pixels around the image.
pub(super) const BORDER: usize = KERNEL / 2;

/// Sizes of a convolution and the position of its parameters: as in a dense layer whose inputs are kernel row, kernel
/// column, channel.
#[derive(Clone, Copy)]
pub(super) struct Conv {
    pub(super) height: usize,
    pub(super) width: usize,
    pub(super) channels: usize,
    pub(super) dense: Dense,
}

impl Conv {
    /// A convolution whose parameters start at `start`. `outputs` must be a multiple of [`WIDE`].
    pub(super) fn new(height: usize, width: usize, channels: usize, outputs: usize, start: usize) -> Self {
        debug_assert!(outputs.is_multiple_of(WIDE), "outputs have no padding");
        Self { height, width, channels, dense: Dense::new(KERNEL * KERNEL * channels, outputs, start) }
    }

    fn outputs(&self) -> usize {
        self.dense.outputs
    }

    fn padded_width(&self) -> usize {
        self.width + 2 * BORDER
    }

    /// Length of a bordered image of `channels` channels.
    pub(super) fn bordered(&self, channels: usize) -> usize {
        (self.height + 2 * BORDER) * self.padded_width() * channels
    }

    /// Position of pixel `(y, x)` in a bordered image of `channels` channels.
    pub(super) fn pixel(&self, y: usize, x: usize, channels: usize) -> usize {
        ((y + BORDER) * self.padded_width() + x + BORDER) * channels
    }

    /// Height and width after pooling.
    pub(super) fn pooled(&self) -> (usize, usize) {
        (self.height / 2, self.width / 2)
    }

    fn lines(&self, channels: usize) -> Rows {
        Rows { start: 0, group: self.width, group_step: self.padded_width() * channels, step: channels }
    }

    /// Convolves `image` (bordered) to `out` (borderless, channels-last), without the bias.
    pub(super) fn forward(&self, arch: Arch, parameters: &[f32], image: &[f32], out: &mut [f32]) {
        let panel = self.dense.inputs * WIDE;
        for index in 0..self.outputs() / WIDE {
            RowProduct {
                a: image,
                rows: self.lines(self.channels),
                segments: KERNEL,
                segment_step: self.padded_width() * self.channels,
                length: KERNEL * self.channels,
                b: &parameters[self.dense.weights + index * panel..][..panel],
                width: WIDE,
                c: &mut out[index * WIDE..],
                c_step: self.outputs(),
                m: self.height * self.width,
            }
            .run(arch);
        }
    }

    /// Adds the gradients of weights and bias to `gradient`, given that of the output (bordered).
    pub(super) fn gradient(&self, arch: Arch, image: &[f32], delta: &[f32], gradient: &mut [f32]) {
        let outputs = self.outputs();
        for panel in 0..outputs / WIDE {
            for line in 0..KERNEL {
                // The columns and channels of a kernel row are adjacent in the image.
                let rows = KERNEL * self.channels;
                let start = self.dense.weights + (panel * self.dense.inputs + line * rows) * WIDE;
                OuterProduct {
                    a: image,
                    a_start: line * self.padded_width() * self.channels,
                    a_segment: self.padded_width() * self.channels,
                    a_step: self.channels,
                    b: delta,
                    b_start: self.pixel(0, 0, outputs) + panel * WIDE,
                    b_segment: self.padded_width() * outputs,
                    b_step: outputs,
                    segments: self.height,
                    length: self.width,
                    m: rows,
                    width: WIDE,
                    c: &mut gradient[start..start + rows * WIDE],
                    accumulate: true,
                }
                .run(arch);
            }
        }
        let bias = &mut gradient[self.dense.bias..self.dense.bias + outputs];
        for y in 0..self.height {
            let line = self.pixel(y, 0, outputs);
            elementwise::add_rows(arch, &delta[line..line + self.width * outputs], bias);
        }
    }

    /// The kernel rotated by 180 degrees with inputs and outputs exchanged, as panels: input of
    /// [`Self::input_gradient`].
    pub(super) fn flip(&self, parameters: &[f32], flipped: &mut [f32]) {
        let (outputs, positions) = (self.outputs(), KERNEL * KERNEL);
        for panel in 0..outputs / WIDE {
            for row in 0..self.dense.inputs {
                let (position, channel) = (row / self.channels, row % self.channels);
                let weights = &parameters[self.dense.weights + (panel * self.dense.inputs + row) * WIDE..][..WIDE];
                let target = (channel / WIDE) * positions * outputs * WIDE + channel % WIDE;
                for (output, &weight) in weights.iter().enumerate() {
                    let input = (positions - 1 - position) * outputs + panel * WIDE + output;
                    flipped[target + input * WIDE] = weight;
                }
            }
        }
    }

    /// The gradient of the image (borderless), given that of the output (bordered): a convolution with the flipped
    /// kernel. The image must have a multiple of [`WIDE`] channels.
    pub(super) fn input_gradient(&self, arch: Arch, flipped: &[f32], delta: &[f32], out: &mut [f32]) {
        let outputs = self.outputs();
        let panel = KERNEL * KERNEL * outputs * WIDE;
        for index in 0..self.channels / WIDE {
            RowProduct {
                a: delta,
                rows: self.lines(outputs),
                segments: KERNEL,
                segment_step: self.padded_width() * outputs,
                length: KERNEL * outputs,
                b: &flipped[index * panel..][..panel],
                width: WIDE,
                c: &mut out[index * WIDE..],
                c_step: self.channels,
                m: self.height * self.width,
            }
            .run(arch);
        }
    }

    /// The four pixels pooled to `(y, x)`, in an image without border.
    fn window(&self, y: usize, x: usize) -> [usize; 4] {
        let first = 2 * y * self.width + 2 * x;
        [first, first + 1, first + self.width, first + self.width + 1].map(|pixel| pixel * self.outputs())
    }

    /// Bias, ReLU and pooling of one output of [`Self::forward`]. `place(y, x)` is the position of a pooled pixel in
    /// `pooled`; `winners` (dense) stores which of the four it was.
    pub(super) fn pool(
        &self,
        arch: Arch,
        parameters: &[f32],
        out: &[f32],
        pooled: &mut [f32],
        winners: &mut [u32],
        place: impl Fn(usize, usize) -> usize,
    ) {
        let outputs = self.outputs();
        let bias = &parameters[self.dense.bias..][..outputs];
        let (height, width) = self.pooled();
        for y in 0..height {
            for x in 0..width {
                let [a, b, c, d] = self.window(y, x).map(|start| &out[start..start + outputs]);
                let pooled = &mut pooled[place(y, x)..][..outputs];
                let winners = &mut winners[(y * width + x) * outputs..][..outputs];
                arch.dispatch(
                    #[inline(always)]
                    || {
                        for i in 0..outputs {
                            let (mut best, mut winner) = (a[i], 0);
                            for (candidate, value) in [(1, b[i]), (2, c[i]), (3, d[i])] {
                                winner = if value > best { candidate } else { winner };
                                best = if value > best { value } else { best };
                            }
                            let value = best + bias[i];
                            pooled[i] = if value <= 0.0 { 0.0 } else { value };
                            winners[i] = winner;
                        }
                    },
                );
            }
        }
    }

    /// The backward pass of [`Self::pool`]: copies the pooled pixels' gradients to the winners' positions in `delta`
    /// (bordered), and sets all other positions that pooling reads to zero.
    pub(super) fn unpool<'a>(
        &self,
        arch: Arch,
        pixel: impl Fn(usize, usize) -> (&'a [f32], &'a [f32]),
        winners: &[u32],
        delta: &mut [f32],
    ) {
        let outputs = self.outputs();
        let (height, width) = self.pooled();
        for y in 0..height {
            for x in 0..width {
                let (gradient, pooled) = pixel(y, x);
                let (gradient, pooled) = (&gradient[..outputs], &pooled[..outputs]);
                let winners = &winners[(y * width + x) * outputs..][..outputs];
                for place in 0..4 {
                    let start = self.pixel(2 * y + place / 2, 2 * x + place % 2, outputs);
                    let delta = &mut delta[start..start + outputs];
                    arch.dispatch(
                        #[inline(always)]
                        || {
                            for i in 0..outputs {
                                let passes = (winners[i] as usize == place) & (pooled[i] != 0.0);
                                delta[i] = if passes { gradient[i] } else { 0.0 };
                            }
                        },
                    );
                }
            }
        }
    }
}
