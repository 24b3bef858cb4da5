//! Images with channels last and a border of zeros, which a convolution reads in place.

use super::windows::Sizes;
use crate::train::graph::kernels::elements::{Into, LINE};
use crate::train::graph::kernels::transpose::Transposition;

/// The layout of an image: rows of pixels with a border, and for each pixel its channels.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) size: Sizes,
    /// Rows and columns before the image.
    pub(super) before: Sizes,
    /// Channels of a pixel, of which the last ones may be zeros without a plane.
    pub(super) channels: usize,
}

impl Frame {
    /// Numbers of an image.
    pub(super) fn len(&self) -> usize {
        self.size.height * self.line()
    }

    /// Numbers of a row of pixels.
    pub(super) fn line(&self) -> usize {
        self.size.width * self.channels
    }

    /// Position of a pixel of the image.
    pub(super) fn pixel(&self, row: usize, column: usize) -> usize {
        ((row + self.before.height) * self.size.width + column + self.before.width) * self.channels
    }

    /// Copies planes of this size, one for each channel. Leaves the border as it is, and what lies outside the frame.
    pub(super) fn fill(&self, planes: &[f32], image: Sizes, target: &mut [f32]) {
        let rows = image.height.min(self.size.height - self.before.height);
        let columns = image.width.min(self.size.width - self.before.width);
        let (plane, channels) = (image.area(), planes.len() / image.area());
        // Few channels at a time, whose next rows the processor fetches ahead.
        for first in (0..channels).step_by(LINE) {
            let of =
                Transposition { rows: LINE.min(channels - first), columns, from_step: plane, to_step: self.channels };
            for row in 0..rows {
                let source = &planes[first * plane + row * image.width..];
                of.run(source, &mut target[self.pixel(row, 0) + first..], Into::Replace);
            }
        }
    }
}
