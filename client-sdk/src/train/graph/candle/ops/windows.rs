//! Windows of images, and pooling.

use candle_core::{Result, Tensor};
use graph::{Pool, PoolKind};

use super::reduce::first_maximum;
use super::take::take;
use crate::train::graph::candle::failure::missing;

/// An axis of an image that windows cover.
#[derive(Clone, Copy)]
pub(super) struct Axis {
    /// Positions of the image.
    pub(super) size: usize,
    /// Positions of a window.
    pub(super) kernel: usize,
    /// Distance of neighbouring windows.
    pub(super) stride: usize,
    /// Distance of a window's positions.
    pub(super) dilation: usize,
    /// Positions before and after the image.
    pub(super) pads: (usize, usize),
    /// Number of windows along the axis.
    pub(super) places: usize,
}

impl Axis {
    /// The only row of an image with one spatial axis. The other axis determines stride and dilation, which have no effect.
    pub(super) fn row(other: Self) -> Self {
        Self { size: 1, kernel: 1, pads: (0, 0), places: 1, ..other }
    }

    /// A position with padding in the image.
    fn inside(&self, position: usize) -> Option<usize> {
        position.checked_sub(self.pads.0).filter(|position| *position < self.size)
    }

    /// The positions of each window, one window after the other.
    pub(super) fn windows(&self) -> Vec<Option<usize>> {
        let places = 0..self.places;
        let window = |place: usize| (0..self.kernel).map(move |at| place * self.stride + at * self.dilation);
        places.flat_map(window).map(|position| self.inside(position)).collect()
    }

    /// The positions from the first to the last one that a window covers.
    pub(super) fn covered(&self) -> Vec<Option<usize>> {
        let count = (self.places - 1) * self.stride + (self.kernel - 1) * self.dilation + 1;
        (0..count).map(|position| self.inside(position)).collect()
    }

    /// The number that a mean over each window divides by along this axis.
    fn counts(&self, by: PoolKind) -> Vec<f32> {
        let all = self.pads.0 + self.size + self.pads.1;
        let count = |place: usize| {
            let window = (place * self.stride)..(place * self.stride + self.kernel).min(all);
            match by {
                PoolKind::MeanWithPadding => window.len(),
                PoolKind::Max | PoolKind::Mean => window.filter(|position| self.inside(*position).is_some()).count(),
            }
        };
        #[expect(clippy::cast_precision_loss, reason = "windows are far below 2^24")]
        let counts = (0..self.places).map(|place| count(place).max(1) as f32).collect();
        counts
    }
}

/// An image with two spatial axes, the first of size 1 for an image with one.
pub(super) fn image(x: &Tensor) -> Result<Tensor> {
    if x.rank() == 3 { x.unsqueeze(2) } else { Ok(x.clone()) }
}

/// Both spatial axes, given the last ones of an image.
pub(super) fn both(axes: &[Axis]) -> Result<[Axis; 2]> {
    match *axes {
        [rows, columns] => Ok([rows, columns]),
        [columns] => Ok([Axis::row(columns), columns]),
        _ => Err(missing()),
    }
}

/// The maximum or mean of each window, one axis after the other.
pub(super) fn pool(pool: &Pool, x: &Tensor, result: &[usize]) -> Result<Tensor> {
    let axes: Vec<Axis> = (0..pool.kernel.len())
        .map(|axis| Axis {
            size: x.dims()[2 + axis],
            kernel: pool.kernel[axis] as usize,
            stride: pool.strides[axis] as usize,
            dilation: 1,
            pads: (pool.pads[axis].0 as usize, pool.pads[axis].1 as usize),
            places: result[2 + axis],
        })
        .collect();
    let [rows, columns] = both(&axes)?;
    let mut y = image(x)?;
    // Columns first: of several maxima, the first one in the order of memory gets the gradient.
    for (axis, of) in [(3, columns), (2, rows)] {
        let fill = if pool.by == PoolKind::Max { f32::NEG_INFINITY } else { 0.0 };
        let windows = take(&y, axis, &of.windows(), fill)?;
        let mut shape = windows.dims().to_vec();
        shape[axis] = of.places;
        shape.insert(axis + 1, of.kernel);
        let windows = windows.reshape(shape)?;
        y = match pool.by {
            PoolKind::Max => first_maximum(&windows, axis + 1)?.squeeze(axis + 1)?,
            PoolKind::Mean | PoolKind::MeanWithPadding => {
                let counts = Tensor::from_vec(of.counts(pool.by), of.places, y.device())?.to_dtype(y.dtype())?;
                let counts = if axis == 2 { counts.unsqueeze(1)? } else { counts };
                windows.sum(axis + 1)?.broadcast_div(&counts)?
            }
        };
    }
    y.reshape(result)
}
