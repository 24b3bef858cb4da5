//! Elements by position.

use graph::wrapped;

use super::reduce::split;
use crate::train::graph::tensor::Tensor;

/// Positions along an axis of `size`.
pub(in crate::train::graph) fn positions(indices: &[i64], size: usize) -> Result<Vec<usize>, String> {
    let found = indices.iter().map(|&index| wrapped(index, size).ok_or(index)).collect::<Result<_, i64>>();
    found.map_err(|index| {
        format!("position {index} is outside an axis of {size}: integers from 0 to {} are allowed", size - 1)
    })
}

/// Calls `visit` for each run of adjacent elements with its start in the result and in the input.
fn each(axis: usize, shape: &[usize], positions: &[usize], mut visit: impl FnMut(usize, usize, usize)) {
    let [outer, size, inner] = split(shape, axis);
    for block in 0..outer {
        for (index, position) in positions.iter().enumerate() {
            visit((block * positions.len() + index) * inner, (block * size + position) * inner, inner);
        }
    }
}

pub(super) fn gather(axis: usize, shape: &[usize], x: &Tensor, indices: &[i64], y: &mut Tensor) -> Result<(), String> {
    fn run<T: Copy>(axis: usize, shape: &[usize], positions: &[usize], x: &[T], y: &mut [T]) {
        each(axis, shape, positions, |to, from, length| y[to..to + length].copy_from_slice(&x[from..from + length]));
    }
    let positions = positions(indices, shape[axis])?;
    match (x, y) {
        (Tensor::F32(x), Tensor::F32(y)) => run(axis, shape, &positions, x, y),
        (Tensor::I64(x), Tensor::I64(y)) => run(axis, shape, &positions, x, y),
        (Tensor::Bool(x), Tensor::Bool(y)) => run(axis, shape, &positions, x, y),
        // Shape inference has excluded different types.
        (Tensor::F32(_) | Tensor::I64(_) | Tensor::Bool(_), _) => {}
    }
    Ok(())
}

pub(super) fn gather_back(axis: usize, shape: &[usize], indices: &[i64], dy: &[f32], dx: &mut [f32]) {
    // The forward pass has checked the positions.
    let Ok(positions) = positions(indices, shape[axis]) else { return };
    each(axis, shape, &positions, |to, from, length| {
        dx[from..from + length].iter_mut().zip(&dy[to..to + length]).for_each(|(dx, dy)| *dx += dy);
    });
}

/// The element of the input for each element of the result.
fn sources(axis: usize, shape: &[usize], result: &[usize], indices: &[i64]) -> Result<Vec<usize>, String> {
    let positions = positions(indices, shape[axis])?;
    let mut sources = Vec::with_capacity(positions.len());
    for (at, position) in positions.into_iter().enumerate() {
        let (mut rest, mut source, mut step) = (at, 0, 1);
        for index in (0..shape.len()).rev() {
            source += step * if index == axis { position } else { rest % result[index] };
            rest /= result[index];
            step *= shape[index];
        }
        sources.push(source);
    }
    Ok(sources)
}

pub(super) fn gather_elements(
    axis: usize,
    [shape, result]: [&[usize]; 2],
    x: &Tensor,
    indices: &[i64],
    y: &mut Tensor,
) -> Result<(), String> {
    let sources = sources(axis, shape, result, indices)?;
    match (x, y) {
        (Tensor::F32(x), Tensor::F32(y)) => y.iter_mut().zip(sources).for_each(|(y, source)| *y = x[source]),
        (Tensor::I64(x), Tensor::I64(y)) => y.iter_mut().zip(sources).for_each(|(y, source)| *y = x[source]),
        (Tensor::Bool(x), Tensor::Bool(y)) => y.iter_mut().zip(sources).for_each(|(y, source)| *y = x[source]),
        // Shape inference has excluded different types.
        (Tensor::F32(_) | Tensor::I64(_) | Tensor::Bool(_), _) => {}
    }
    Ok(())
}

pub(super) fn gather_elements_back(
    axis: usize,
    [shape, result]: [&[usize]; 2],
    indices: &[i64],
    dy: &[f32],
    dx: &mut [f32],
) {
    // The forward pass has checked the positions.
    let Ok(sources) = sources(axis, shape, result, indices) else { return };
    dy.iter().zip(sources).for_each(|(dy, source)| dx[source] += dy);
}
