//! Columns of many vectors in device memory, and the launches multiplying them.

use std::ops::Range;

use crate::robust::Inputs;

/// Number of vectors that a thread multiplies with as many others, as in the kernels.
pub(super) const TILE: u32 = 4;

/// Number of `u32` of each row per thread, so that additions to memory stay few compared to products.
const WORDS_OF_A_THREAD: usize = 64;

/// Some columns of all vectors in device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rows {
    /// Number of vectors, one per row.
    pub(crate) vectors: u32,
    /// `u32` of a row: half as many as columns.
    pub(crate) width: u32,
}

impl Rows {
    pub(super) fn new(inputs: Inputs<'_>, columns: &Range<usize>) -> Self {
        Self { vectors: small(inputs.vectors().len()), width: small(columns.len().div_ceil(2)) }
    }

    /// `u32` of all rows.
    pub(crate) const fn words(self) -> usize {
        self.vectors as usize * self.width as usize
    }

    /// Tiles of [`TILE`] vectors.
    pub(crate) const fn tiles(self) -> u32 {
        self.vectors.div_ceil(TILE)
    }
}

/// One launch of the kernel of inner products.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Products {
    pub(crate) rows: Rows,
    /// The tiles of vectors to multiply with all from their own tile on.
    pub(crate) tiles: Range<u32>,
    /// The vector whose products come first in the sums.
    pub(crate) first_row: u32,
}

impl Products {
    /// Parts of the launch's second dimension.
    pub(crate) const fn parts(&self) -> u32 {
        (self.tiles.end - self.tiles.start) * self.rows.tiles()
    }

    /// Number of threads sharing the columns.
    pub(crate) const fn threads(&self) -> usize {
        (self.rows.width as usize).div_ceil(WORDS_OF_A_THREAD)
    }

    /// Number of words of the sums that the launch may touch.
    pub(crate) fn words(&self) -> usize {
        let end = self.rows.vectors.min(TILE * self.tiles.end);
        2 * (end - self.first_row) as usize * self.rows.vectors as usize
    }
}

/// Vectors, tiles and columns of a group are far below 2^32.
pub(super) fn small(number: usize) -> u32 {
    u32::try_from(number).expect("there are at most 4096 vectors and 2^24 columns of a group")
}
