//! Reductions, and functions along an axis.

use graph::Reduction;
use pulp::Arch;

use crate::train::graph::context::vectorized;
use crate::train::graph::kernels::math::{dot, exp, in_lanes, sum};
use crate::train::graph::kernels::product::Into;
use crate::train::graph::kernels::walk::{Walk, add_back, copy, dense};

/// Elements before an axis, along it, and after it.
pub(super) fn split(shape: &[usize], axis: usize) -> [usize; 3] {
    [shape[..axis].iter().product(), shape[axis], shape[axis + 1..].iter().product()]
}

/// Axes of an input (tensor 0), and of the result with reduced axes left out (tensor 1).
fn reduced(shape: &[usize], axes: &[u32]) -> Walk<2> {
    let is_reduced = |axis: usize| axes.iter().any(|&reduced| reduced as usize == axis);
    let kept: Vec<usize> =
        shape.iter().enumerate().map(|(axis, &size)| if is_reduced(axis) { 1 } else { size }).collect();
    let mut steps = dense(&kept);
    steps.iter_mut().enumerate().filter(|(axis, _)| is_reduced(*axis)).for_each(|(_, step)| *step = 0);
    Walk::new(shape, [&dense(shape), &steps])
}

/// Calls `visit` for each element with its position in the result.
fn each(walk: &Walk<2>, mut visit: impl FnMut(usize, usize)) {
    let [_, step] = walk.inner();
    walk.runs(|[from, to], length| {
        (0..length).for_each(|index| visit(from + index, to.wrapping_add_signed(step * index.cast_signed())));
    });
}

#[expect(clippy::cast_precision_loss, reason = "at most 2^28 elements; one rounding is meant")]
fn mean_factor(x: &[f32], y: &[f32]) -> f32 {
    y.len() as f32 / x.len() as f32
}

pub(super) fn reduce(by: Reduction, axes: &[u32], shape: &[usize], x: &[f32], y: &mut [f32]) {
    let walk = reduced(shape, axes);
    match by {
        Reduction::Sum | Reduction::Mean => {
            y.fill(0.0);
            add_back(&walk, x, y);
            if by == Reduction::Mean {
                let factor = mean_factor(x, y);
                y.iter_mut().for_each(|y| *y *= factor);
            }
        }
        Reduction::Max => {
            y.fill(f32::NEG_INFINITY);
            each(&walk, |from, to| y[to] = if x[from] > y[to] || x[from].is_nan() { x[from] } else { y[to] });
        }
        Reduction::Min => {
            y.fill(f32::INFINITY);
            each(&walk, |from, to| y[to] = if x[from] < y[to] || x[from].is_nan() { x[from] } else { y[to] });
        }
        Reduction::Product => {
            y.fill(1.0);
            each(&walk, |from, to| y[to] *= x[from]);
        }
        Reduction::Norm => {
            y.fill(0.0);
            each(&walk, |from, to| y[to] += x[from] * x[from]);
            y.iter_mut().for_each(|y| *y = y.sqrt());
        }
    }
}

pub(super) fn reduce_back(by: Reduction, axes: &[u32], shape: &[usize], [x, y, dy]: [&[f32]; 3], dx: &mut [f32]) {
    let walk = reduced(shape, axes);
    match by {
        Reduction::Sum => each(&walk, |from, to| dx[from] += dy[to]),
        Reduction::Mean => {
            let factor = mean_factor(x, y);
            each(&walk, |from, to| dx[from] += dy[to] * factor);
        }
        Reduction::Max | Reduction::Min => {
            let mut open = vec![true; y.len()];
            each(&walk, |from, to| {
                if open[to] && x[from] == y[to] {
                    open[to] = false;
                    dx[from] += dy[to];
                }
            });
        }
        Reduction::Product => {
            // The product of the others, which also holds where an element is 0.
            let (mut zeros, mut others) = (vec![0_u32; y.len()], vec![1.0; y.len()]);
            each(&walk, |from, to| if x[from] == 0.0 { zeros[to] += 1 } else { others[to] *= x[from] });
            each(&walk, |from, to| {
                let rest = match (zeros[to], x[from] == 0.0) {
                    (0, _) => others[to] / x[from],
                    (1, true) => others[to],
                    (_, _) => 0.0,
                };
                dx[from] += dy[to] * rest;
            });
        }
        Reduction::Norm => each(&walk, |from, to| {
            if y[to] > 0.0 {
                dx[from] += dy[to] * x[from] / y[to];
            }
        }),
    }
}

pub(super) fn arg_max(axis: usize, shape: &[usize], x: &[f32], y: &mut [i64]) {
    let [_, size, inner] = split(shape, axis);
    for (at, y) in y.iter_mut().enumerate() {
        let start = at / inner * size * inner + at % inner;
        let mut best = 0;
        for index in 1..size {
            if x[start + index * inner] > x[start + best * inner] {
                best = index;
            }
        }
        *y = best.cast_signed() as i64;
    }
}

/// Moves an axis to the end, computes each row, and moves it back. Like all closures here, `row` has to be inlined.
#[inline(always)]
fn by_rows(arch: Arch, axis: usize, shape: &[usize], x: &[f32], y: &mut [f32], row: impl Fn(&[f32], &mut [f32])) {
    let [outer, size, inner] = split(shape, axis);
    let each = |x: &[f32], y: &mut [f32]| {
        vectorized(
            arch,
            y,
            #[inline(always)]
            |y| x.chunks_exact(size).zip(y.chunks_exact_mut(size)).for_each(|(x, y)| row(x, y)),
        );
    };
    if inner == 1 {
        return each(x, y);
    }
    let (from, to) = ([outer, inner, size], dense(&[outer, inner, size]));
    let steps = [(size * inner).cast_signed(), 1, inner.cast_signed()];
    let mut rows = vec![0.0; x.len()];
    copy(&Walk::new(&from, [&to, &steps]), &mut rows, x);
    let mut results = vec![0.0; x.len()];
    each(&rows, &mut results);
    copy(&Walk::new(&from, [&steps, &to]), y, &results);
}

#[inline(always)]
fn highest(row: &[f32]) -> f32 {
    in_lanes(row, f32::NEG_INFINITY, f32::max)
}

pub(super) fn softmax(axis: usize, shape: &[usize], x: &[f32], y: &mut [f32], arch: Arch) {
    by_rows(
        arch,
        axis,
        shape,
        x,
        y,
        #[inline(always)]
        |x, y| {
            let highest = highest(x);
            y.iter_mut().zip(x).for_each(|(y, &x)| *y = if x == f32::NEG_INFINITY { 0.0 } else { exp(x - highest) });
            let sum = sum(y);
            y.iter_mut().for_each(|y| *y /= sum);
        },
    );
}

pub(super) fn log_softmax(axis: usize, shape: &[usize], x: &[f32], y: &mut [f32], arch: Arch) {
    by_rows(
        arch,
        axis,
        shape,
        x,
        y,
        #[inline(always)]
        |x, y| {
            let highest = highest(x);
            y.iter_mut().zip(x).for_each(|(y, &x)| *y = exp(x - highest));
            let sum = sum(y).ln();
            y.iter_mut().zip(x).for_each(|(y, &x)| *y = x - highest - sum);
        },
    );
}

/// Adds the gradient of rows along an axis, which `row` adds to its last argument from rows of `y` and `dy`.
#[inline(always)]
fn rows_back(
    arch: Arch,
    axis: usize,
    shape: &[usize],
    [y, dy]: [&[f32]; 2],
    (into, dx): (Into, &mut [f32]),
    row: impl Fn(&[f32], &[f32], &mut [f32]),
) {
    let [outer, size, inner] = split(shape, axis);
    let each = |into: Into, y: &[f32], dy: &[f32], dx: &mut [f32]| {
        vectorized(
            arch,
            dx,
            #[inline(always)]
            |dx| {
                for ((y, dy), dx) in y.chunks_exact(size).zip(dy.chunks_exact(size)).zip(dx.chunks_exact_mut(size)) {
                    into.prepare(dx);
                    row(y, dy, dx);
                }
            },
        );
    };
    if inner == 1 {
        return each(into, y, dy, dx);
    }
    let sizes = [outer, inner, size];
    let steps = [(size * inner).cast_signed(), 1, inner.cast_signed()];
    let rows = |values: &[f32]| {
        let mut rows = vec![0.0; values.len()];
        copy(&Walk::new(&sizes, [&dense(&sizes), &steps]), &mut rows, values);
        rows
    };
    let mut result = vec![0.0; y.len()];
    each(Into::Add, &rows(y), &rows(dy), &mut result);
    into.prepare(dx);
    add_back(&Walk::new(&sizes, [&dense(&sizes), &steps]), &result, dx);
}

pub(super) fn softmax_back(axis: usize, shape: &[usize], of: [&[f32]; 2], dx: (Into, &mut [f32]), arch: Arch) {
    rows_back(
        arch,
        axis,
        shape,
        of,
        dx,
        #[inline(always)]
        |y, dy, dx| {
            let sum = dot(y, dy);
            dx.iter_mut().zip(y).zip(dy).for_each(|((dx, y), dy)| *dx += y * (dy - sum));
        },
    );
}

pub(super) fn log_softmax_back(axis: usize, shape: &[usize], of: [&[f32]; 2], dx: (Into, &mut [f32]), arch: Arch) {
    rows_back(
        arch,
        axis,
        shape,
        of,
        dx,
        #[inline(always)]
        |y, dy, dx| {
            let sum = sum(dy);
            dx.iter_mut().zip(y).zip(dy).for_each(|((dx, &y), dy)| *dx += dy - exp(y) * sum);
        },
    );
}

pub(super) fn cum_sum(axis: usize, shape: &[usize], x: &[f32], y: &mut [f32]) {
    let [_, size, inner] = split(shape, axis);
    for (x, y) in x.chunks_exact(size * inner).zip(y.chunks_exact_mut(size * inner)) {
        for at in 0..x.len() {
            y[at] = x[at] + if at < inner { 0.0 } else { y[at - inner] };
        }
    }
}

pub(super) fn cum_sum_back(axis: usize, shape: &[usize], dy: &[f32], dx: &mut [f32]) {
    let [_, size, inner] = split(shape, axis);
    let mut sums = vec![0.0; inner];
    for (dy, dx) in dy.chunks_exact(size * inner).zip(dx.chunks_exact_mut(size * inner)) {
        sums.fill(0.0);
        for at in (0..dy.len()).rev() {
            sums[at % inner] += dy[at];
            dx[at] += sums[at % inner];
        }
    }
}
