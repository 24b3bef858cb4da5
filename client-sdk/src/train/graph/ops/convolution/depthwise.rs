//! Convolutions of each channel by itself.

use super::windows::{Sizes, Windows};
use crate::train::graph::context::{Context, vectorized};
use crate::train::graph::kernels::math::dot;
use crate::train::graph::kernels::packing::aligned;
use crate::train::graph::kernels::product::Into;

/// Places of a row that are computed together.
const LANES: usize = 8;

/// The side of a square kernel that has a function of its own: it moves by one pixel, and its border is smaller than itself.
fn side(windows: &Windows) -> Option<usize> {
    let Windows { kernel, stride, dilation, before, .. } = windows;
    let is_plain = stride.area() == 1 && dilation.area() == 1 && kernel.height == kernel.width;
    let fits = before.height < kernel.height && before.width < kernel.width;
    (is_plain && fits).then_some(kernel.height)
}

/// The results of one channel.
pub(super) fn forward(windows: &Windows, image: &[f32], weights: &[f32], y: &mut [f32], context: &mut Context) {
    let plane = Plane { values: image, sizes: windows.image, before: windows.before };
    let into = Into::Replace;
    for (y, weights) in y.chunks_exact_mut(windows.places()).zip(weights.chunks_exact(windows.depth())) {
        match side(windows) {
            Some(3) => plane.windows(weights_of::<3>(weights), windows.places, (into, y), context),
            Some(5) => plane.windows(weights_of::<5>(weights), windows.places, (into, y), context),
            Some(_) | None => {
                y.fill(0.0);
                vectorized(
                    context.arch,
                    y,
                    #[inline(always)]
                    |y| forward_runs(windows, image, weights, y),
                );
            }
        }
    }
}

/// Computes the gradient of one channel of an image.
pub(super) fn image_gradient(
    windows: &Windows,
    weights: &[f32],
    dy: &[f32],
    (mut into, dx): (Into, &mut [f32]),
    context: &mut Context,
) {
    let Windows { kernel, before, image, places, .. } = *windows;
    for (dy, weights) in dy.chunks_exact(windows.places()).zip(weights.chunks_exact(windows.depth())) {
        // Windows of the result's gradient with the kernel turned by 180 degrees.
        let rest = |kernel: usize, before: usize| (kernel - 1).saturating_sub(before);
        let before = Sizes { height: rest(kernel.height, before.height), width: rest(kernel.width, before.width) };
        let plane = Plane { values: dy, sizes: places, before };
        match side(windows) {
            Some(3) => plane.windows(turned(weights_of::<3>(weights)), image, (into, &mut *dx), context),
            Some(5) => plane.windows(turned(weights_of::<5>(weights)), image, (into, &mut *dx), context),
            Some(_) | None => {
                into.prepare(dx);
                vectorized(
                    context.arch,
                    &mut *dx,
                    #[inline(always)]
                    |dx| image_runs(windows, weights, dy, dx),
                );
            }
        }
        // Further kernels of the channel add to it.
        into = Into::Add;
    }
}

/// Adds the gradient of one channel's weights.
pub(super) fn add_weight_gradient(windows: &Windows, image: &[f32], dy: &[f32], dw: &mut [f32], context: &mut Context) {
    let plane = Plane { values: image, sizes: windows.image, before: windows.before };
    for (dy, dw) in dy.chunks_exact(windows.places()).zip(dw.chunks_exact_mut(windows.depth())) {
        match side(windows) {
            Some(3) => plane.add_products::<3>(dy, windows.places, dw, context),
            Some(5) => plane.add_products::<5>(dy, windows.places, dw, context),
            Some(_) | None => vectorized(
                context.arch,
                dw,
                #[inline(always)]
                |dw| weight_runs(windows, image, dy, dw),
            ),
        }
    }
}

/// The rows of a square kernel.
fn weights_of<const SIDE: usize>(weights: &[f32]) -> [[f32; SIDE]; SIDE] {
    std::array::from_fn(|row| std::array::from_fn(|column| weights[row * SIDE + column]))
}

/// A kernel turned by 180 degrees.
fn turned<const SIDE: usize>(weights: [[f32; SIDE]; SIDE]) -> [[f32; SIDE]; SIDE] {
    std::array::from_fn(|row| std::array::from_fn(|column| weights[SIDE - 1 - row][SIDE - 1 - column]))
}

/// A plane of numbers, and the rows and columns of zeros before it.
#[derive(Clone, Copy)]
struct Plane<'a> {
    values: &'a [f32],
    sizes: Sizes,
    before: Sizes,
}

impl Plane<'_> {
    /// Copies the plane with zeros around it, for windows of `side` by `side` that begin at so many places: whole lanes
    /// of them in each row. Returns the copy and the length of its rows. What lies outside is left out.
    fn bordered(self, side: usize, places: Sizes, memory: &mut Vec<f32>) -> (&[f32], usize) {
        let Self { values, sizes, before } = self;
        let (height, width) = (places.height + side - 1, places.width.next_multiple_of(LANES) + side - 1);
        let columns = sizes.width.min(width - before.width);
        let target = aligned(memory, height * width);
        target.fill(0.0);
        let rows = target.chunks_exact_mut(width).skip(before.height);
        for (target, row) in rows.zip(values.chunks_exact(sizes.width)) {
            // Copies of a fixed size are vector instructions.
            let (target, row) =
                (target[before.width..][..columns].as_chunks_mut::<LANES>(), row[..columns].as_chunks());
            target.0.iter_mut().zip(row.0).for_each(|(target, row)| *target = *row);
            target.1.iter_mut().zip(row.1).for_each(|(target, row)| *target = *row);
        }
        (target, width)
    }

    /// Computes the products of a kernel with the windows at these places.
    fn windows<const SIDE: usize>(
        self,
        weights: [[f32; SIDE]; SIDE],
        places: Sizes,
        (into, y): (Into, &mut [f32]),
        context: &mut Context,
    ) {
        let (plane, width) = self.bordered(SIDE, places, &mut context.windows);
        vectorized(
            context.arch,
            y,
            #[inline(always)]
            |y| {
                for (row, y) in y.chunks_exact_mut(places.width).enumerate() {
                    let rows = std::array::from_fn(|index| &plane[(row + index) * width..][..width]);
                    match into {
                        Into::Replace => each_in_row(rows, &weights, y, |y, sum| *y = sum),
                        Into::Add => each_in_row(rows, &weights, y, |y, sum| *y += sum),
                    }
                }
            },
        );
    }

    /// Adds to each weight the products of the result's gradient with the numbers that the weight has met.
    fn add_products<const SIDE: usize>(self, dy: &[f32], places: Sizes, dw: &mut [f32], context: &mut Context) {
        let (plane, width) = self.bordered(SIDE, places, &mut context.windows);
        let whole = Plane { values: dy, sizes: places, before: Sizes { height: 0, width: 0 } };
        let (dy, line) = whole.bordered(1, places, &mut context.frames.delta);
        vectorized(
            context.arch,
            dw,
            #[inline(always)]
            |dw| {
                let mut sums = [[[0.0; LANES]; SIDE]; SIDE];
                for (row, dy) in dy.chunks_exact(line).enumerate() {
                    add_row_products(
                        std::array::from_fn(|index| &plane[(row + index) * width..][..width]),
                        dy,
                        &mut sums,
                    );
                }
                let sums = sums.as_flattened().iter().map(|lanes| lanes.iter().sum::<f32>());
                dw.iter_mut().zip(sums).for_each(|(dw, sum)| *dw += sum);
            },
        );
    }
}

/// Calls `put` with each element of a row and its result.
#[inline(always)]
fn each_in_row<const SIDE: usize>(
    rows: [&[f32]; SIDE],
    weights: &[[f32; SIDE]; SIDE],
    y: &mut [f32],
    put: impl Fn(&mut f32, f32),
) {
    let (blocks, rest) = y.as_chunks_mut::<LANES>();
    let last = blocks.len() * LANES;
    for (block, y) in blocks.iter_mut().enumerate() {
        let sums = lanes(rows, weights, block * LANES);
        y.iter_mut().zip(sums).for_each(|(y, sum)| put(y, sum));
    }
    if !rest.is_empty() {
        let sums = lanes(rows, weights, last);
        rest.iter_mut().zip(sums).for_each(|(y, sum)| put(y, sum));
    }
}

/// The results of places from `first` on.
#[inline(always)]
fn lanes<const SIDE: usize>(rows: [&[f32]; SIDE], weights: &[[f32; SIDE]; SIDE], first: usize) -> [f32; LANES] {
    let mut sums = [0.0; LANES];
    for row in 0..SIDE {
        let x = &rows[row][first..][..LANES + SIDE - 1];
        for column in 0..SIDE {
            for lane in 0..LANES {
                sums[lane] += weights[row][column] * x[column + lane];
            }
        }
    }
    sums
}

/// Adds the products of a row of the result's gradient.
#[inline(always)]
fn add_row_products<const SIDE: usize>(rows: [&[f32]; SIDE], dy: &[f32], sums: &mut [[[f32; LANES]; SIDE]; SIDE]) {
    for (block, dy) in dy.as_chunks::<LANES>().0.iter().enumerate() {
        for row in 0..SIDE {
            let x = &rows[row][block * LANES..][..LANES + SIDE - 1];
            for column in 0..SIDE {
                for lane in 0..LANES {
                    sums[row][column][lane] += dy[lane] * x[column + lane];
                }
            }
        }
    }
}

/// The results of one channel and one kernel of any kind.
#[inline(always)]
fn forward_runs(windows: &Windows, image: &[f32], weights: &[f32], y: &mut [f32]) {
    let step = windows.stride.width;
    windows.runs(
        #[inline(always)]
        |index: usize, place: usize, start: usize, length: usize| {
            let (y, weight) = (&mut y[place..place + length], weights[index]);
            if step == 1 {
                y.iter_mut().zip(&image[start..start + length]).for_each(|(y, x)| *y += weight * x);
            } else {
                y.iter_mut().zip(image[start..].iter().step_by(step)).for_each(|(y, x)| *y += weight * x);
            }
        },
    );
}

#[inline(always)]
fn weight_runs(windows: &Windows, image: &[f32], dy: &[f32], dw: &mut [f32]) {
    let step = windows.stride.width;
    windows.runs(
        #[inline(always)]
        |index: usize, place: usize, start: usize, length: usize| {
            let dy = &dy[place..place + length];
            dw[index] += if step == 1 {
                dot(dy, &image[start..start + length])
            } else {
                dy.iter().zip(image[start..].iter().step_by(step)).map(|(dy, x)| dy * x).sum::<f32>()
            };
        },
    );
}

#[inline(always)]
fn image_runs(windows: &Windows, weights: &[f32], dy: &[f32], dx: &mut [f32]) {
    let step = windows.stride.width;
    windows.runs(
        #[inline(always)]
        |index: usize, place: usize, start: usize, length: usize| {
            let (dy, weight) = (&dy[place..place + length], weights[index]);
            if step == 1 {
                dx[start..start + length].iter_mut().zip(dy).for_each(|(dx, dy)| *dx += weight * dy);
            } else {
                dx[start..].iter_mut().step_by(step).zip(dy).for_each(|(dx, dy)| *dx += weight * dy);
            }
        },
    );
}
