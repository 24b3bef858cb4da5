//! Products of matrices with any distances between their elements, on the kernels of the ready models.

use pulp::Arch;

pub(in crate::train::graph) use super::elements::Into;
use super::elements::LINE;
use super::packing::{Matrix, aligned, pack_panel, pack_rows};
use super::transpose::Transposition;
use crate::train::cpu::dense::panel_width;
use crate::train::cpu::gemm::{OuterProduct, RowProduct, Rows};

/// Memory of products, reused.
#[derive(Default)]
pub(in crate::train::graph) struct Scratch {
    left: Vec<f32>,
    pub(in crate::train::graph) panel: Vec<f32>,
    pub(in crate::train::graph) result: Vec<f32>,
    /// A sum over several products.
    pub(in crate::train::graph) sum: Vec<f32>,
    packed: Packed,
}

/// A right operand of several products, as panels of columns.
#[derive(Default)]
struct Packed {
    panels: Vec<f32>,
    rows: usize,
    columns: usize,
}

/// Terms of a sum that are added before those of the next columns: their operands stay in the cache.
const DEPTH: usize = 256;
/// Rows of a result that are computed before the next ones.
const ROWS: usize = 48;

/// `c (+)= a b`, with a dense `c`.
pub(in crate::train::graph) fn product(
    arch: Arch,
    scratch: &mut Scratch,
    a: Matrix<'_>,
    b: Matrix<'_>,
    into: Into,
    c: &mut [f32],
) {
    debug_assert_eq!((a.columns, c.len()), (b.rows, a.rows * b.columns));
    if c.is_empty() {
        return;
    }
    if a.column_step != 1 && a.row_step == 1 && b.column_step == 1 {
        return outer(arch, scratch, a, b, into, c);
    }
    let packed_numbers = a.rows * (a.columns + b.columns);
    if a.column_step == 1 && b.column_step != 1 && b.row_step == 1 && packed_numbers < b.rows * b.columns {
        return mirrored(arch, scratch, a, b, into, c);
    }
    let Scratch { left, panel, result, .. } = scratch;
    let left = Left::of(a, left);
    let width = panel_width(b.columns);
    for first in (0..b.columns).step_by(width) {
        let panel = aligned(panel, b.rows * width);
        pack_panel(b, first, width, panel);
        let columns = width.min(b.columns - first);
        on_panel(arch, left, panel, width, Target { c, first, columns, step: b.columns, into }, result);
    }
}

/// The product of a matrix with adjacent rows and one with adjacent columns, which need no packing.
fn outer(arch: Arch, scratch: &mut Scratch, a: Matrix<'_>, b: Matrix<'_>, into: Into, c: &mut [f32]) {
    let Scratch { panel, result, .. } = scratch;
    let width = panel_width(b.columns);
    // Few rows at a time, which are written from their start to their end.
    for (block, c) in c.chunks_mut(ROWS * b.columns).enumerate() {
        let rows = c.len() / b.columns;
        let part = aligned(result, rows * width);
        for first in (0..b.columns).step_by(width) {
            let columns = width.min(b.columns - first);
            let (values, start, b_step) = if columns == width {
                (b.values, first, b.row_step)
            } else {
                let panel = aligned(panel, b.rows * width);
                pack_panel(b, first, width, panel);
                (&*panel, 0, width)
            };
            for term in (0..a.columns).step_by(DEPTH) {
                let product = OuterProduct {
                    a: a.values,
                    a_start: block * ROWS + term * a.column_step,
                    a_segment: 0,
                    a_step: a.column_step,
                    b: values,
                    b_start: start + term * b_step,
                    b_segment: 0,
                    b_step,
                    segments: 1,
                    length: DEPTH.min(a.columns - term),
                    m: rows,
                    width,
                    c: &mut *part,
                    accumulate: term > 0,
                };
                product.run(arch);
            }
            Target { c: &mut *c, first, columns, step: b.columns, into }.take(part, width);
        }
    }
}

/// The product by way of its transpose, which packs `a` instead of a larger `b`.
fn mirrored(arch: Arch, scratch: &mut Scratch, a: Matrix<'_>, b: Matrix<'_>, into: Into, c: &mut [f32]) {
    let Scratch { panel, result, .. } = scratch;
    let width = panel_width(a.rows);
    for (block, c) in c.chunks_mut(width * b.columns).enumerate() {
        let panel = aligned(panel, b.rows * width);
        pack_panel(a.transposed(), block * width, width, panel);
        let part = aligned(result, b.columns * width);
        let left = Left { values: b.values, step: b.column_step, rows: b.columns, length: b.rows };
        left.times(arch, panel, width, part, width);
        let columns = c.len() / b.columns;
        let of = Transposition { rows: b.columns, columns, from_step: width, to_step: b.columns };
        of.run(part, c, into);
    }
}

impl Scratch {
    /// Packs the right operand of the next [`Self::times`].
    pub(in crate::train::graph) fn pack(&mut self, b: Matrix<'_>) {
        let width = panel_width(b.columns);
        let panels = aligned(&mut self.packed.panels, b.rows * b.columns.next_multiple_of(width));
        for (index, panel) in panels.chunks_exact_mut(b.rows * width).enumerate() {
            pack_panel(b, index * width, width, panel);
        }
        (self.packed.rows, self.packed.columns) = (b.rows, b.columns);
    }

    /// The product with the packed operand; the columns of `a` are adjacent.
    pub(in crate::train::graph) fn times(&mut self, arch: Arch, a: Matrix<'_>, into: Into, c: &mut [f32]) {
        let mut packed = std::mem::take(&mut self.packed);
        let (rows, columns) = (packed.rows, packed.columns);
        let panels = aligned(&mut packed.panels, rows * columns.next_multiple_of(panel_width(columns)));
        let left = Left { values: a.values, step: a.row_step, rows: a.rows, length: a.columns };
        self.on_panels(arch, left, panels, columns, into, c);
        self.packed = packed;
    }

    /// The product of rows with panels that have so many columns together.
    pub(in crate::train::graph) fn on_panels(
        &mut self,
        arch: Arch,
        left: Left<'_>,
        panels: &[f32],
        columns: usize,
        into: Into,
        c: &mut [f32],
    ) {
        let width = panel_width(columns);
        for (index, panel) in panels.chunks_exact(left.length * width).enumerate() {
            let first = index * width;
            let target = Target { c: &mut *c, first, columns: width.min(columns - first), step: columns, into };
            on_panel(arch, left, panel, width, target, &mut self.result);
        }
    }
}

/// Rows of adjacent numbers.
#[derive(Clone, Copy)]
pub(in crate::train::graph) struct Left<'a> {
    pub(in crate::train::graph) values: &'a [f32],
    pub(in crate::train::graph) step: usize,
    pub(in crate::train::graph) rows: usize,
    pub(in crate::train::graph) length: usize,
}

impl<'a> Left<'a> {
    /// The rows of a matrix, packed if they are not adjacent.
    pub(in crate::train::graph) fn of(matrix: Matrix<'a>, packed: &'a mut Vec<f32>) -> Self {
        let (rows, length) = (matrix.rows, matrix.columns);
        if matrix.column_step == 1 {
            Self { values: matrix.values, step: matrix.row_step, rows, length }
        } else {
            Self { values: pack_rows(matrix, packed), step: length, rows, length }
        }
    }

    /// The product with a panel of `width` columns, all of which `c` gets, with rows at a distance of `c_step`.
    pub(in crate::train::graph) fn times(self, arch: Arch, panel: &[f32], width: usize, c: &mut [f32], c_step: usize) {
        let Left { values: a, step, rows: m, length } = self;
        let rows = Rows::even(step);
        RowProduct { a, rows, segments: 1, segment_step: 0, length, b: panel, width, c, c_step, m }.run(arch);
    }
}

/// Columns of a result from `first` on.
pub(in crate::train::graph) struct Target<'a> {
    pub(in crate::train::graph) c: &'a mut [f32],
    pub(in crate::train::graph) first: usize,
    pub(in crate::train::graph) columns: usize,
    /// Distance between rows.
    pub(in crate::train::graph) step: usize,
    pub(in crate::train::graph) into: Into,
}

impl Target<'_> {
    /// Takes the used columns of a panel of results.
    pub(in crate::train::graph) fn take(self, part: &[f32], width: usize) {
        for (row, part) in part.chunks_exact(width).enumerate() {
            let c = &mut self.c[row * self.step + self.first..][..self.columns];
            match self.into {
                Into::Replace => c.copy_from_slice(&part[..self.columns]),
                Into::Add if self.columns == width => {
                    // Sums of a fixed size are vector instructions.
                    let lines = c.as_chunks_mut::<LINE>().0.iter_mut().zip(part.as_chunks::<LINE>().0);
                    for (c, part) in lines {
                        c.iter_mut().zip(part).for_each(|(c, part)| *c += part);
                    }
                }
                Into::Add => c.iter_mut().zip(part).for_each(|(c, part)| *c += part),
            }
        }
    }
}

/// The product of rows with a panel of `width` columns, of which the target's are used.
pub(in crate::train::graph) fn on_panel(
    arch: Arch,
    left: Left<'_>,
    panel: &[f32],
    width: usize,
    target: Target<'_>,
    result: &mut Vec<f32>,
) {
    if target.columns == width && target.into == Into::Replace {
        return left.times(arch, panel, width, &mut target.c[target.first..], target.step);
    }
    let part = aligned(result, left.rows * width);
    left.times(arch, panel, width, part, width);
    target.take(part, width);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn product_equals_three_loops_for_any_steps() {
        let arch = Arch::new();
        let numbers = |count: usize| -> Vec<f32> { (0..count).map(|i| ((i * 7919 + 13) % 31) as f32 - 15.0).collect() };
        for (m, k, n) in [(1, 1, 1), (3, 5, 7), (8, 33, 16), (9, 4, 40), (17, 300, 65), (3, 700, 90)] {
            let (a, b) = (numbers(m * k), numbers(k * n));
            let expected: Vec<f32> =
                (0..m * n).map(|at| (0..k).map(|t| a[at / n * k + t] * b[t * n + at % n]).sum()).collect();
            let (mut a_t, mut b_t) = (vec![0.0; m * k], vec![0.0; k * n]);
            (0..m * k).for_each(|at| a_t[at % k * m + at / k] = a[at]);
            (0..k * n).for_each(|at| b_t[at % n * k + at / n] = b[at]);
            let left = [Matrix::dense(&a, m, k), Matrix::dense(&a_t, k, m).transposed()];
            let right = [Matrix::dense(&b, k, n), Matrix::dense(&b_t, n, k).transposed()];
            for (left, right) in left.into_iter().flat_map(|left| right.map(|right| (left, right))) {
                let mut scratch = Scratch::default();
                let mut c = vec![f32::NAN; m * n];
                product(arch, &mut scratch, left, right, Into::Replace, &mut c);
                assert_eq!(c, expected, "{m} {k} {n}");
                product(arch, &mut scratch, left, right, Into::Add, &mut c);
                assert!(c.iter().zip(&expected).all(|(c, expected)| *c == 2.0 * expected));
                if left.column_step == 1 {
                    scratch.pack(right);
                    scratch.times(arch, left, Into::Replace, &mut c);
                    assert_eq!(c, expected, "packed {m} {k} {n}");
                }
            }
        }
    }
}
