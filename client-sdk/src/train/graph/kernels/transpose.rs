//! Transpositions by blocks, which stay in the cache.

use super::elements::{Into, LINE};

/// A transposition between two slices. It writes the number of `row` and `column` to `column * to_step + row`.
#[derive(Clone, Copy)]
pub(in crate::train::graph) struct Transposition {
    /// Rows of the source.
    pub(in crate::train::graph) rows: usize,
    /// Columns of the source, which are adjacent.
    pub(in crate::train::graph) columns: usize,
    /// Distance between the source's rows.
    pub(in crate::train::graph) from_step: usize,
    /// Distance between the target's rows, one for each column of the source.
    pub(in crate::train::graph) to_step: usize,
}

impl Transposition {
    /// Writes or adds the numbers of `from` to `to`.
    pub(in crate::train::graph) fn run(self, from: &[f32], to: &mut [f32], into: Into) {
        match into {
            Into::Replace => self.each(from, to, |to, from| *to = from),
            Into::Add => self.each(from, to, |to, from| *to += from),
        }
    }

    /// Calls `put` with each element of the target and its number from the source.
    fn each(self, from: &[f32], to: &mut [f32], put: impl Fn(&mut f32, f32)) {
        let Self { rows, columns, from_step, to_step } = self;
        // Lines that the processor fetches ahead: those after each other in few rows and columns.
        for left in (0..columns).step_by(LINE) {
            for first in (0..rows).step_by(LINE) {
                let count = LINE.min(rows - first);
                for column in left..columns.min(left + LINE) {
                    let target = &mut to[column * to_step + first..][..count];
                    let source = from[first * from_step + column..].iter().step_by(from_step);
                    target.iter_mut().zip(source).for_each(|(target, source)| put(target, *source));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transposition_covers_blocks_and_edges() {
        for (rows, columns) in [(1, 1), (4, 4), (3, 9), (9, 3), (16, 20), (37, 21)] {
            let (from_step, to_step) = (columns + 2, rows + 3);
            let from: Vec<f32> = (0_u16..).map(f32::from).take(rows * from_step).collect();
            let mut to = vec![-1.0; columns * to_step];
            let of = Transposition { rows, columns, from_step, to_step };
            of.run(&from, &mut to, Into::Replace);
            of.run(&from, &mut to, Into::Add);
            for (index, value) in to.iter().enumerate() {
                let (column, row) = (index / to_step, index % to_step);
                let expected = if row < rows { 2.0 * from[row * from_step + column] } else { -1.0 };
                assert_eq!(*value, expected, "{rows} by {columns}: row {row}, column {column}");
            }
        }
    }
}
