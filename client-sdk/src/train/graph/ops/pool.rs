//! Pooling: the maximum or mean of each window.

use graph::{Pool, PoolKind};

use crate::train::graph::context::{Context, vectorized};
use crate::train::graph::kernels::product::Into;
use crate::train::graph::tensor::Operand;

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

/// Computes the results, and saves where each maximum is, as the bits of its position in the plane.
pub(super) fn pool(
    pool: &Pool,
    x: Operand<'_>,
    result: &[usize],
    y: &mut [f32],
    saved: &mut Vec<f32>,
    context: &Context,
) {
    let plane = Plane::new(pool, x.shape, result);
    let (size, places) = (plane.image.iter().product(), plane.places.iter().product());
    let is_max = pool.by == PoolKind::Max;
    saved.resize(if is_max { y.len() } else { 0 }, 0.0);
    let whole = is_max.then(|| WholeWindows::of(&plane)).flatten();
    for (number, (image, y)) in x.f32().chunks_exact(size).zip(y.chunks_exact_mut(places)).enumerate() {
        if is_max {
            let saved = &mut saved[number * places..][..places];
            if let Some(windows) = &whole {
                vectorized(
                    context.arch,
                    (y, saved),
                    #[inline(always)]
                    |(y, saved): (&mut [f32], &mut [f32])| windows.maxima(image, y, saved),
                );
                continue;
            }
            plane.each(|place, rows, columns, _| {
                let best = best(image, plane.image[1], rows, columns);
                y[place] = best.map_or(f32::NEG_INFINITY, |best| image[best]);
                saved[place] = f32::from_bits(best.and_then(|best| u32::try_from(best).ok()).unwrap_or(NOWHERE));
            });
            continue;
        }
        plane.each(|place, rows, columns, padded| {
            let count = plane.count(&rows, &columns, padded);
            let row_sum = |row| image[row * plane.image[1]..][columns.clone()].iter().sum::<f32>();
            y[place] = rows.map(row_sum).sum::<f32>() / count;
        });
    }
}

/// Position of the maximum of a window that lies in the padding.
const NOWHERE: u32 = u32::MAX;

/// Windows that all lie inside the image.
struct WholeWindows {
    /// Positions of a window's numbers from its first one.
    offsets: Vec<usize>,
    /// Distance of windows below each other, and beside each other.
    steps: [usize; 2],
    columns: usize,
}

impl WholeWindows {
    /// The windows of a plane, if none reaches into the padding.
    fn of(plane: &Plane<'_>) -> Option<Self> {
        let [height, width] = [0, 1].map(|axis| attribute(&plane.pool.kernel, axis, 1));
        let are_whole = plane.pool.pads.iter().all(|pads| *pads == (0, 0))
            && plane.rows.iter().all(|(rows, _)| rows.len() == height)
            && plane.columns.iter().all(|(columns, _)| columns.len() == width);
        let [_, line] = plane.image;
        let [down, right] = [0, 1].map(|axis| attribute(&plane.pool.strides, axis, 1));
        are_whole.then(|| Self {
            offsets: (0..height * width).map(|at| at / width * line + at % width).collect(),
            steps: [down * line, right],
            columns: plane.places[1],
        })
    }

    /// Whether the windows are squares of four numbers, side by side.
    fn are_pairs(&self) -> bool {
        let [_, right] = self.steps;
        right == 2 && matches!(*self.offsets, [0, 1, line, last] if line > 1 && last == line + 1)
    }

    /// Values and positions of the first maxima. NaN wins.
    #[inline(always)]
    fn maxima(&self, image: &[f32], y: &mut [f32], saved: &mut [f32]) {
        if self.are_pairs() {
            return self.maxima_of_pairs(image, y, saved);
        }
        let [down, right] = self.steps;
        let lines = y.chunks_exact_mut(self.columns).zip(saved.chunks_exact_mut(self.columns));
        for (row, (y, saved)) in lines.enumerate() {
            y.fill(f32::NEG_INFINITY);
            saved.fill(f32::from_bits(NOWHERE));
            for (number, offset) in self.offsets.iter().enumerate() {
                let start = row * down + offset;
                let values = image[start..].iter().step_by(right);
                for (column, ((y, saved), &value)) in y.iter_mut().zip(&mut *saved).zip(values).enumerate() {
                    #[expect(clippy::cast_possible_truncation, reason = "a plane has fewer than 2^32 numbers")]
                    let position = f32::from_bits((start + column * right) as u32);
                    let wins = number == 0 || value > *y || value.is_nan();
                    *saved = if wins { position } else { *saved };
                    *y = if wins { value } else { *y };
                }
            }
        }
    }

    /// [`Self::maxima`] for [`Self::are_pairs`], in vector instructions.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "a plane has fewer than 2^32 numbers")]
    fn maxima_of_pairs(&self, image: &[f32], y: &mut [f32], saved: &mut [f32]) {
        let ([down, _], line) = (self.steps, self.offsets[2]);
        let lines = y.chunks_exact_mut(self.columns).zip(saved.chunks_exact_mut(self.columns));
        for (row, (y, saved)) in lines.enumerate() {
            let pairs = |start: usize| image[start..start + 2 * self.columns].as_chunks::<2>().0.iter();
            let four = pairs(row * down).zip(pairs(row * down + line));
            for (column, ((y, saved), (above, below))) in y.iter_mut().zip(saved).zip(four).enumerate() {
                let (mut highest, mut offset) = (above[0], 0);
                for (value, at) in [(above[1], 1), (below[0], line as u32), (below[1], line as u32 + 1)] {
                    let wins = value > highest || value.is_nan();
                    (highest, offset) = if wins { (value, at) } else { (highest, offset) };
                }
                *y = highest;
                *saved = f32::from_bits((row * down) as u32 + 2 * column as u32 + offset);
            }
        }
    }
}

/// Computes the gradient of the images, given the shapes of images and results.
pub(super) fn pool_back(
    pool: &Pool,
    [shape, result]: [&[usize]; 2],
    [dy, saved]: [&[f32]; 2],
    into: Into,
    dx: &mut [f32],
) {
    let plane = Plane::new(pool, shape, result);
    let (size, places) = (plane.image.iter().product(), plane.places.iter().product());
    for (number, (dy, dx)) in dy.chunks_exact(places).zip(dx.chunks_exact_mut(size)).enumerate() {
        into.prepare(dx);
        if pool.by == PoolKind::Max {
            for (dy, position) in dy.iter().zip(&saved[number * places..]) {
                if let Some(dx) = dx.get_mut(position.to_bits() as usize) {
                    *dx += dy;
                }
            }
            continue;
        }
        plane.each(|place, rows, columns, padded| {
            let part = dy[place] / plane.count(&rows, &columns, padded);
            for row in rows {
                dx[row * plane.image[1]..][columns.clone()].iter_mut().for_each(|dx| *dx += part);
            }
        });
    }
}
