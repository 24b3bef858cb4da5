//! Pooling: the maximum or mean of each window.

use graph::{Pool, PoolKind};

/// The part of a window along an axis: positions of the image, and the number of positions with padding.
type Side = (std::ops::Range<usize>, usize);

/// The windows of an image of two spatial axes; one axis is a height of 1.
struct Plane<'a> {
    pool: &'a Pool,
    image: [usize; 2],
    places: [usize; 2],
    rows: Vec<Side>,
    columns: Vec<Side>,
}

/// The last two numbers of a shape, with a first of 1 if there is one.
fn pair(sizes: &[usize]) -> [usize; 2] {
    match *sizes {
        [.., height, width] => [height, width],
        [width] => [1, width],
        [] => [1, 1],
    }
}

/// An attribute of the axis, 0 for rows; `default` for the rows of an image with one spatial axis.
fn attribute(values: &[u32], axis: usize, default: usize) -> usize {
    let missing = 2 - values.len();
    axis.checked_sub(missing).map_or(default, |axis| values[axis] as usize)
}

impl<'a> Plane<'a> {
    /// The windows of a pooling from images of one shape to another.
    fn new(pool: &'a Pool, shape: &[usize], result: &[usize]) -> Self {
        let (image, places) = (pair(&shape[2..]), pair(&result[2..]));
        let sides = |axis: usize| (0..places[axis]).map(|place| side(pool, axis, image[axis], place)).collect();
        Self { pool, image, places, rows: sides(0), columns: sides(1) }
    }

    /// Calls `visit` for each place with its number, the rows and columns of its window, and the window's size with padding.
    #[inline(always)]
    fn each(&self, mut visit: impl FnMut(usize, std::ops::Range<usize>, std::ops::Range<usize>, usize)) {
        for (row, (rows, height)) in self.rows.iter().enumerate() {
            for (column, (columns, width)) in self.columns.iter().enumerate() {
                visit(row * self.places[1] + column, rows.clone(), columns.clone(), height * width);
            }
        }
    }

    /// The divisor of a mean.
    fn count(&self, rows: &std::ops::Range<usize>, columns: &std::ops::Range<usize>, padded: usize) -> f32 {
        let count = match self.pool.by {
            PoolKind::Max => 1,
            PoolKind::Mean => rows.len() * columns.len(),
            PoolKind::MeanWithPadding => padded,
        };
        #[expect(clippy::cast_precision_loss, reason = "windows are far below 2^24")]
        let count = count.max(1) as f32;
        count
    }
}

/// The window of a place along an axis of `size`.
fn side(pool: &Pool, axis: usize, size: usize, place: usize) -> Side {
    let kernel = attribute(&pool.kernel, axis, 1);
    let stride = attribute(&pool.strides, axis, 1);
    let pads = axis.checked_sub(2 - pool.pads.len()).map_or((0, 0), |axis| pool.pads[axis]);
    let (before, after) = (pads.0 as usize, pads.1 as usize);
    let start = place * stride;
    let end = (start + kernel).min(size + before + after);
    (start.saturating_sub(before).min(size)..end.saturating_sub(before).min(size), end - start)
}

/// Position of the first maximum in a window.
#[inline(always)]
fn best(image: &[f32], width: usize, rows: std::ops::Range<usize>, columns: std::ops::Range<usize>) -> Option<usize> {
    let mut best = rows.start * width + columns.start;
    if rows.is_empty() || columns.is_empty() {
        return None;
    }
    let mut highest = image[best];
    for row in rows {
        let start = row * width + columns.start;
        for (offset, &value) in image[start..start + columns.len()].iter().enumerate() {
            // NaN wins, so that divergence is detected.
            if value > highest || value.is_nan() {
                (best, highest) = (start + offset, value);
            }
        }
    }
    Some(best)
}

pub(super) fn pool(pool: &Pool, x: &[f32], shape: &[usize], result: &[usize], y: &mut [f32]) {
    let plane = Plane::new(pool, shape, result);
    let (size, places) = (plane.image.iter().product(), plane.places.iter().product());
    for (image, y) in x.chunks_exact(size).zip(y.chunks_exact_mut(places)) {
        plane.each(|place, rows, columns, padded| {
            y[place] = match pool.by {
                PoolKind::Max => {
                    best(image, plane.image[1], rows, columns).map_or(f32::NEG_INFINITY, |best| image[best])
                }
                PoolKind::Mean | PoolKind::MeanWithPadding => {
                    let count = plane.count(&rows, &columns, padded);
                    let row_sum = |row| image[row * plane.image[1]..][columns.clone()].iter().sum::<f32>();
                    rows.map(row_sum).sum::<f32>() / count
                }
            };
        });
    }
}

pub(super) fn pool_back(pool: &Pool, x: &[f32], shape: &[usize], result: &[usize], dy: &[f32], dx: &mut [f32]) {
    let plane = Plane::new(pool, shape, result);
    let (size, places) = (plane.image.iter().product(), plane.places.iter().product());
    for ((image, dy), dx) in x.chunks_exact(size).zip(dy.chunks_exact(places)).zip(dx.chunks_exact_mut(size)) {
        plane.each(|place, rows, columns, padded| match pool.by {
            PoolKind::Max => {
                if let Some(best) = best(image, plane.image[1], rows, columns) {
                    dx[best] += dy[place];
                }
            }
            PoolKind::Mean | PoolKind::MeanWithPadding => {
                let part = dy[place] / plane.count(&rows, &columns, padded);
                for row in rows {
                    dx[row * plane.image[1]..][columns.clone()].iter_mut().for_each(|dx| *dx += part);
                }
            }
        });
    }
}
