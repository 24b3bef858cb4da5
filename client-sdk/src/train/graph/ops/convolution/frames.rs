//! Images with channels last and a border of zeros, which a convolution reads in place.

use super::windows::Sizes;

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
    #[inline(always)]
    pub(super) fn fill(&self, planes: &[f32], image: Sizes, target: &mut [f32]) {
        let plane = image.height * image.width;
        let rows = image.height.min(self.size.height - self.before.height);
        let columns = image.width.min(self.size.width - self.before.width);
        for row in 0..rows {
            let start = self.pixel(row, 0);
            let target = &mut target[start..start + columns * self.channels];
            to_last(&planes[row * image.width..], plane, columns, self.channels, planes.len() / plane, target);
        }
    }
}

/// Numbers of a block that both sides of a transposition keep in the cache.
const BLOCK: usize = 16;

/// Copies `channels` planes, at a distance of `plane`, to `columns` pixels at a distance of `step`.
#[inline(always)]
fn to_last(planes: &[f32], plane: usize, columns: usize, step: usize, channels: usize, pixels: &mut [f32]) {
    for first in (0..columns).step_by(BLOCK) {
        let count = BLOCK.min(columns - first);
        for channel in 0..channels {
            let source = &planes[channel * plane + first..][..count];
            let target = pixels[first * step + channel..].iter_mut().step_by(step);
            source.iter().zip(target).for_each(|(source, target)| *target = *source);
        }
    }
}

/// Passes each plane's numbers, in rows of `width` pixels, to `take` with the plane's number: the reverse of channels last.
#[inline(always)]
pub(super) fn to_planes(pixels: &[f32], width: usize, planes: usize, mut take: impl FnMut(usize, usize, f32)) {
    for (block, pixels) in pixels.chunks(BLOCK * width).enumerate() {
        for plane in 0..planes {
            for (index, value) in pixels[plane..].iter().step_by(width).enumerate() {
                take(plane, block * BLOCK + index, *value);
            }
        }
    }
}
