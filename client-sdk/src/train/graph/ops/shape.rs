//! Operations on shapes.

use graph::{Padding, Point, Size, slice_positions};

use crate::train::graph::context::Gradients;
use crate::train::graph::kernels::walk::{Walk, add_back, copy, dense, repeated};
use crate::train::graph::tensor::{Operand, Tensor};

/// Copies elements between tensors of the same type.
pub(super) fn copy_any(walk: &Walk<2>, to: &mut Tensor, from: &Tensor) {
    match (to, from) {
        (Tensor::F32(to), Tensor::F32(from)) => copy(walk, to, from),
        (Tensor::I64(to), Tensor::I64(from)) => copy(walk, to, from),
        (Tensor::Bool(to), Tensor::Bool(from)) => copy(walk, to, from),
        // Shape inference has excluded different types.
        (Tensor::F32(_) | Tensor::I64(_) | Tensor::Bool(_), _) => {}
    }
}

/// All elements in order.
pub(super) fn whole(shape: &[usize]) -> Walk<2> {
    let steps = dense(shape);
    Walk::new(shape, [&steps, &steps])
}

/// The result of a transposition (tensor 0), and its input.
pub(super) fn transpose(order: &[u32], shape: &[usize], result: &[usize]) -> Walk<2> {
    let own = dense(shape);
    let steps: Vec<isize> = order.iter().map(|&axis| own[axis as usize]).collect();
    Walk::new(result, [&dense(result), &steps])
}

/// The result of an expansion (tensor 0), and its input.
pub(super) fn expand(shape: &[usize], result: &[usize]) -> Walk<2> {
    Walk::new(result, [&dense(result), &repeated(shape, result)])
}

/// The place of each input in the result of a concatenation (tensor 0), and the input.
fn places(axis: usize, inputs: &[Operand<'_>], result: &[usize]) -> Vec<Walk<2>> {
    let steps = dense(result);
    let mut before = 0;
    let place = |input: &Operand<'_>| {
        let start = before * steps[axis].cast_unsigned();
        before += input.shape[axis];
        Walk::new(input.shape, [&steps, &dense(input.shape)]).from(0, start)
    };
    inputs.iter().map(place).collect()
}

/// Copies each input to its place.
pub(super) fn concat(axis: usize, inputs: &[Operand<'_>], shape: &[usize], result: &mut Tensor) {
    for (walk, input) in places(axis, inputs, shape).iter().zip(inputs) {
        copy_any(walk, result, input.tensor);
    }
}

pub(super) fn concat_back(
    axis: usize,
    inputs: &[Operand<'_>],
    shape: &[usize],
    dy: &[f32],
    gradients: &mut Gradients<'_>,
) {
    for (input, walk) in places(axis, inputs, shape).iter().enumerate() {
        if let Some(dx) = gradients.of(input) {
            back(walk, dy, dx);
        }
    }
}

/// The result of a slice (tensor 0), and its place in the input.
pub(super) fn slice(
    axis: usize,
    [start, end]: [Size; 2],
    step: i32,
    shape: &[usize],
    result: &[usize],
    point: Point,
) -> Option<Walk<2>> {
    let (first, _) = slice_positions(shape[axis], start.at(point)?, end.at(point)?, step)?;
    let own = dense(shape);
    let mut steps = own.clone();
    steps[axis] *= isize::try_from(step).ok()?;
    Some(Walk::new(result, [&dense(result), &steps]).from(1, first * own[axis].cast_unsigned()))
}

/// For each position of the result along an axis, the position of the input; `None` in constant padding.
pub(in crate::train::graph) fn sources(size: usize, (before, after): (i32, i32), with: Padding) -> Vec<Option<usize>> {
    let size = size.cast_signed() as i64;
    let positions = -i64::from(before)..size + i64::from(after);
    let source = |position: i64| match with {
        Padding::Constant(_) => (0..size).contains(&position).then_some(position),
        Padding::Edge => Some(position.clamp(0, size - 1)),
        Padding::Reflect if position < 0 => Some(-position),
        Padding::Reflect if position >= size => Some(2 * (size - 1) - position),
        Padding::Reflect => Some(position),
    };
    positions.map(|position| usize::try_from(source(position)?).ok()).collect()
}

/// Calls `visit` for each element of the result with its source.
fn each_padded(
    pads: &[(i32, i32)],
    with: Padding,
    shape: &[usize],
    result: &[usize],
    mut visit: impl FnMut(usize, Option<usize>),
) {
    let axes: Vec<_> = shape.iter().zip(pads).map(|(&size, &pads)| sources(size, pads, with)).collect();
    let steps = dense(shape);
    let mut index = vec![0; result.len()];
    for at in 0..result.iter().product() {
        let source = (0..index.len()).try_fold(0, |sum, axis| {
            let position: usize = axes[axis][index[axis]]?;
            Some(sum + position * steps[axis].cast_unsigned())
        });
        visit(at, source);
        for axis in (0..result.len()).rev() {
            index[axis] += 1;
            if index[axis] < result[axis] {
                break;
            }
            index[axis] = 0;
        }
    }
}

pub(super) fn pad(pads: &[(i32, i32)], with: Padding, shape: &[usize], result: &[usize], x: &[f32], y: &mut [f32]) {
    let value = match with {
        Padding::Constant(value) => value,
        Padding::Edge | Padding::Reflect => 0.0,
    };
    each_padded(pads, with, shape, result, |at, source| y[at] = source.map_or(value, |source| x[source]));
}

pub(super) fn pad_back(
    pads: &[(i32, i32)],
    with: Padding,
    shape: &[usize],
    result: &[usize],
    dy: &[f32],
    dx: &mut [f32],
) {
    each_padded(pads, with, shape, result, |at, source| {
        if let Some(source) = source {
            dx[source] += dy[at];
        }
    });
}

/// The integers from `start`.
pub(super) fn range(start: i64, step: i32, y: &mut [i64]) {
    let mut next = start;
    for y in y {
        *y = next;
        next = next.saturating_add(step.into());
    }
}

/// Whether an element of the last two axes belongs to the triangle.
pub(in crate::train::graph) fn is_kept(at: usize, shape: &[usize], upper: bool, k: i32) -> bool {
    let [.., rows, columns] = *shape else { return true };
    let (row, column) = ((at / columns % rows).cast_signed() as i64, (at % columns).cast_signed() as i64);
    if upper { column >= row + i64::from(k) } else { column <= row + i64::from(k) }
}

pub(super) fn triangle(upper: bool, k: i32, shape: &[usize], x: &Tensor, y: &mut Tensor) {
    copy_any(&whole(shape), y, x);
    let kept = |at: usize| is_kept(at, shape, upper, k);
    match y {
        Tensor::F32(y) => y.iter_mut().enumerate().filter(|(at, _)| !kept(*at)).for_each(|(_, y)| *y = 0.0),
        Tensor::I64(y) => y.iter_mut().enumerate().filter(|(at, _)| !kept(*at)).for_each(|(_, y)| *y = 0),
        Tensor::Bool(y) => y.iter_mut().enumerate().filter(|(at, _)| !kept(*at)).for_each(|(_, y)| *y = false),
    }
}

pub(super) fn triangle_back(upper: bool, k: i32, shape: &[usize], dy: &[f32], dx: &mut [f32]) {
    for (_, (dx, dy)) in dx.iter_mut().zip(dy).enumerate().filter(|(at, _)| is_kept(*at, shape, upper, k)) {
        *dx += dy;
    }
}

/// Adds the gradient of a result to that of the input.
pub(super) fn back(walk: &Walk<2>, dy: &[f32], dx: &mut [f32]) {
    add_back(walk, dy, dx);
}
