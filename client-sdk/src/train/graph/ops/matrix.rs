//! Products of matrices.

use crate::train::graph::context::{Context, Gradients};
use crate::train::graph::kernels::packing::Matrix;
use crate::train::graph::kernels::product::{Into, product};
use crate::train::graph::kernels::walk::{Walk, add_back, copy, dense, repeated};
use crate::train::graph::tensor::Operand;

/// How a batched product is taken apart.
struct Batched {
    rows: usize,
    inner: usize,
    columns: usize,
    /// Starts of the matrices, as numbers of matrices: of the result, A and B.
    matrices: Walk<3>,
}

/// The sizes of a product. If all of A shares one B, the rows of A are one matrix.
fn batched(a: &[usize], b: &[usize]) -> Batched {
    let (a_batch, rows, inner) = match *a {
        [] => (&a[..0], 1, 1),
        [inner] => (&a[..0], 1, inner),
        [ref batch @ .., rows, inner] => (batch, rows, inner),
    };
    let (b_batch, columns) = match *b {
        [] | [_] => (&b[..0], 1),
        [ref batch @ .., _, columns] => (batch, columns),
    };
    if b_batch.iter().all(|&size| size == 1) && b_batch.len() <= a_batch.len() {
        let rows = a_batch.iter().product::<usize>() * rows;
        return Batched { rows, inner, columns, matrices: Walk::new(&[], [&[], &[], &[]]) };
    }
    let rank = a_batch.len().max(b_batch.len());
    let size = |shape: &[usize], axis: usize| (axis + shape.len()).checked_sub(rank).map_or(1, |axis| shape[axis]);
    let batch: Vec<usize> = (0..rank).map(|axis| size(a_batch, axis).max(size(b_batch, axis))).collect();
    let steps = [dense(&batch), repeated(a_batch, &batch), repeated(b_batch, &batch)];
    Batched { rows, inner, columns, matrices: Walk::new(&batch, [&steps[0], &steps[1], &steps[2]]) }
}

impl Batched {
    /// Calls `visit` with the numbers of the matrices of result, A and B for each product.
    fn each(&self, mut visit: impl FnMut([usize; 3])) {
        let steps = self.matrices.inner();
        self.matrices.runs(|starts, length| {
            for index in 0..length {
                visit(std::array::from_fn(|tensor| {
                    starts[tensor].wrapping_add_signed(steps[tensor] * index.cast_signed())
                }));
            }
        });
    }
}

/// The matrix of this number among matrices that lie one after the other.
fn matrix(values: &[f32], number: usize, rows: usize, columns: usize) -> Matrix<'_> {
    Matrix::dense(&values[number * rows * columns..][..rows * columns], rows, columns)
}

pub(super) fn matmul([a, b]: [Operand<'_>; 2], y: &mut [f32], context: &mut Context) {
    let of = batched(a.shape, b.shape);
    let (rows, inner, columns) = (of.rows, of.inner, of.columns);
    of.each(|[at, a_at, b_at]| {
        let y = &mut y[at * rows * columns..][..rows * columns];
        let (a, b) = (matrix(a.f32(), a_at, rows, inner), matrix(b.f32(), b_at, inner, columns));
        product(context.arch, &mut context.scratch, a, b, Into::Replace, y);
    });
}

/// What each product does to its matrix of a gradient. They add if several share one: `all` numbers are more than it has.
fn each_into(into: Into, all: usize, gradient: &mut [f32]) -> Into {
    if all == gradient.len() {
        return into;
    }
    into.prepare(gradient);
    Into::Add
}

pub(super) fn matmul_back([a, b]: [Operand<'_>; 2], dy: &[f32], gradients: &mut Gradients<'_>, context: &mut Context) {
    let of = batched(a.shape, b.shape);
    let (rows, inner, columns) = (of.rows, of.inner, of.columns);
    let products = dy.len() / (rows * columns);
    if let Some((into, da)) = gradients.target(0) {
        let into = each_into(into, products * rows * inner, da);
        of.each(|[at, a_at, b_at]| {
            let (dy, b) = (matrix(dy, at, rows, columns), matrix(b.f32(), b_at, inner, columns));
            let da = &mut da[a_at * rows * inner..][..rows * inner];
            product(context.arch, &mut context.scratch, dy, b.transposed(), into, da);
        });
    }
    if let Some((into, db)) = gradients.target(1) {
        let into = each_into(into, products * inner * columns, db);
        of.each(|[at, a_at, b_at]| {
            let (dy, a) = (matrix(dy, at, rows, columns), matrix(a.f32(), a_at, rows, inner));
            let db = &mut db[b_at * inner * columns..][..inner * columns];
            product(context.arch, &mut context.scratch, a.transposed(), dy, into, db);
        });
    }
}

/// Settings of `alpha * A B + beta * C`.
#[derive(Clone, Copy)]
pub(super) struct Gemm {
    pub(super) transpose_a: bool,
    pub(super) transpose_b: bool,
    pub(super) alpha: f32,
    pub(super) beta: f32,
}

impl Gemm {
    /// The matrix that is multiplied.
    fn operand<'a>(operand: Operand<'a>, transpose: bool) -> Matrix<'a> {
        let [rows, columns] = *operand.shape else { return Matrix::dense(&[], 0, 0) };
        let matrix = Matrix::dense(operand.f32(), rows, columns);
        if transpose { matrix.transposed() } else { matrix }
    }

    pub(super) fn forward(self, inputs: &[Operand<'_>], result: &[usize], y: &mut [f32], context: &mut Context) {
        let (a, b) = (Self::operand(inputs[0], self.transpose_a), Self::operand(inputs[1], self.transpose_b));
        product(context.arch, &mut context.scratch, a, b, Into::Replace, y);
        if self.alpha != 1.0 {
            y.iter_mut().for_each(|y| *y *= self.alpha);
        }
        let Some(c) = inputs.get(2) else { return };
        let walk = Walk::new(result, [&dense(result), &repeated(c.shape, result)]);
        if self.beta == 1.0 {
            // Adding back from the smaller tensor is adding to each row.
            let [_, step] = walk.inner();
            walk.runs(|[at, c_at], length| {
                for (index, y) in y[at..at + length].iter_mut().enumerate() {
                    *y += c.f32()[c_at.wrapping_add_signed(step * index.cast_signed())];
                }
            });
            return;
        }
        let mut added = vec![0.0; y.len()];
        copy(&walk, &mut added, c.f32());
        y.iter_mut().zip(added).for_each(|(y, c)| *y += self.beta * c);
    }

    pub(super) fn backward(
        self,
        inputs: &[Operand<'_>],
        result: &[usize],
        dy: &[f32],
        gradients: &mut Gradients<'_>,
        context: &mut Context,
    ) {
        let [rows, columns] = *result else { return };
        let scaled: Vec<f32>;
        let d = if self.alpha == 1.0 {
            dy
        } else {
            scaled = dy.iter().map(|dy| dy * self.alpha).collect();
            &scaled
        };
        let d = Matrix::dense(d, rows, columns);
        let (a, b) = (Self::operand(inputs[0], self.transpose_a), Self::operand(inputs[1], self.transpose_b));
        let Context { arch, scratch, .. } = context;
        if let Some((into, da)) = gradients.target(0) {
            let (left, right) = if self.transpose_a { (b, d.transposed()) } else { (d, b.transposed()) };
            product(*arch, scratch, left, right, into, da);
        }
        if let Some((into, db)) = gradients.target(1) {
            let (left, right) = if self.transpose_b { (d.transposed(), a) } else { (a.transposed(), d) };
            product(*arch, scratch, left, right, into, db);
        }
        let (Some(c), Some(dc)) = (inputs.get(2), gradients.of(2)) else { return };
        let walk = Walk::new(result, [&dense(result), &repeated(c.shape, result)]);
        if self.beta == 1.0 {
            add_back(&walk, dy, dc);
        } else {
            let scaled: Vec<f32> = dy.iter().map(|dy| dy * self.beta).collect();
            add_back(&walk, &scaled, dc);
        }
    }
}
