//! Copies of matrices in the layout of the product.

use super::elements::{Into, LINE};
use super::transpose::Transposition;

/// A matrix within a slice.
#[derive(Clone, Copy)]
pub(in crate::train::graph) struct Matrix<'a> {
    pub(in crate::train::graph) values: &'a [f32],
    pub(in crate::train::graph) rows: usize,
    pub(in crate::train::graph) columns: usize,
    /// Distance between rows.
    pub(in crate::train::graph) row_step: usize,
    /// Distance between columns.
    pub(in crate::train::graph) column_step: usize,
}

impl<'a> Matrix<'a> {
    /// A dense matrix, row after row.
    pub(in crate::train::graph) fn dense(values: &'a [f32], rows: usize, columns: usize) -> Self {
        Self { values, rows, columns, row_step: columns, column_step: 1 }
    }

    /// Rows and columns exchanged.
    pub(in crate::train::graph) fn transposed(self) -> Self {
        Self {
            rows: self.columns,
            columns: self.rows,
            row_step: self.column_step,
            column_step: self.row_step,
            values: self.values,
        }
    }
}

/// Room for `length` numbers from the start of a cache line on. What it holds is arbitrary.
pub(in crate::train::graph) fn aligned(memory: &mut Vec<f32>, length: usize) -> &mut [f32] {
    if memory.len() < length + LINE {
        memory.resize(length + LINE, 0.0);
    }
    let start = memory.as_ptr().align_offset(LINE * size_of::<f32>()).min(LINE);
    &mut memory[start..start + length]
}

/// The matrix with adjacent columns, of one with adjacent rows.
pub(in crate::train::graph) fn pack_rows<'a>(matrix: Matrix<'_>, packed: &'a mut Vec<f32>) -> &'a [f32] {
    let Matrix { values, rows, columns, row_step, column_step } = matrix;
    debug_assert_eq!(row_step, 1);
    let size = rows * columns;
    packed.resize(size.max(packed.len()), 0.0);
    let of = Transposition { rows: columns, columns: rows, from_step: column_step, to_step: columns };
    of.run(values, packed, Into::Replace);
    &packed[..size]
}

/// `width` columns from `first` on, row after row, with zeros after the last column.
pub(in crate::train::graph) fn pack_panel(matrix: Matrix<'_>, first: usize, width: usize, panel: &mut [f32]) {
    let Matrix { values, rows, columns, row_step, column_step } = matrix;
    let used = width.min(columns - first);
    if used < width {
        panel.fill(0.0);
    }
    if column_step == 1 {
        for (row, target) in panel.chunks_exact_mut(width).enumerate() {
            let source = &values[row * row_step + first..][..used];
            if used == width {
                // Copies of a fixed size are vector instructions.
                let lines = target.as_chunks_mut::<LINE>().0.iter_mut().zip(source.as_chunks::<LINE>().0);
                lines.for_each(|(target, source)| *target = *source);
            } else {
                target[..used].copy_from_slice(source);
            }
        }
        return;
    }
    debug_assert_eq!(row_step, 1);
    let of = Transposition { rows: used, columns: rows, from_step: column_step, to_step: width };
    of.run(&values[first * column_step..], panel, Into::Replace);
}
