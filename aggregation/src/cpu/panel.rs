//! Some columns of all vectors, split for [`gram`](super::gram) once for all pairs.

use std::ops::Range;

use super::gram::{PANEL, Row, SIDE};
use super::kernel::Present;
use crate::robust::Inputs;

/// Largest word multiplied whole: 128 sums of two products, the maximum of a lane in a panel, stay below 2^31.
const SMALL: i16 = 1 << 11;

/// Some columns of all vectors, ready to be multiplied. Rows beyond the vectors and words beyond the columns are zero.
pub(super) struct Panel {
    words: Vec<Row>,
    low: Vec<Row>,
    high: Vec<Row>,
    small: bool,
    vectors: usize,
}

impl Panel {
    pub(super) fn new(vectors: usize) -> Self {
        let rows = || vec![[0; PANEL]; vectors.next_multiple_of(SIDE)];
        Self { words: rows(), low: rows(), high: rows(), small: true, vectors }
    }

    /// Loads at most [`PANEL`] columns.
    pub(super) fn load(&mut self, inputs: Inputs<'_>, columns: Range<usize>) {
        let mut extremes = (0, 0);
        for (row, vector) in self.words.iter_mut().zip(inputs.vectors()) {
            let (filled, rest) = row.split_at_mut(columns.len());
            filled.copy_from_slice(&vector[columns.clone()]);
            rest.fill(0);
            for word in filled {
                extremes = (extremes.0.min(*word), extremes.1.max(*word));
            }
        }
        self.small = extremes.0 >= -SMALL && extremes.1 <= SMALL;
        if self.small {
            return;
        }
        for ((words, low), high) in self.words.iter().zip(&mut self.low).zip(&mut self.high) {
            for ((word, low), high) in words.iter().zip(low).zip(high) {
                // Rounded, so that l lies in -128..128; h·256 does not fit if h is 128, so l is taken from the word's
                // bits.
                *high = i16::try_from((i32::from(*word) + 128) >> 8).expect("16 bits less 8");
                *low = (*word << 8) >> 8;
            }
        }
    }

    /// Adds the products of all pairs `i <= j` of the panel to entry `i * vectors + j`; entries below the diagonal are
    /// undefined.
    pub(super) fn add_products(&self, kernel: Present, sums: &mut [i64]) {
        let left = |plane: &'_ [Row], at: usize, weight: i64, sums: &mut [i64]| {
            for other in (at..self.words.len()).step_by(SIDE) {
                let products = kernel.products(&plane[at..at + SIDE], &self.words[other..other + SIDE]);
                for (i, row) in products.iter().enumerate().take(self.vectors - at) {
                    for (j, product) in row.iter().enumerate().take(self.vectors - other) {
                        sums[(at + i) * self.vectors + other + j] += weight * product;
                    }
                }
            }
        };
        for at in (0..self.words.len()).step_by(SIDE) {
            if self.small {
                left(&self.words, at, 1, sums);
            } else {
                left(&self.high, at, 256, sums);
                left(&self.low, at, 1, sums);
            }
        }
    }
}
