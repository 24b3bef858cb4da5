//! Exact inner products of `i16` vectors by 16-bit multiplications.
//!
//! A product of two words has up to 31 bits, so adding many of them is slow. So the words of one side are taken as 256·h + l with h and l
//! of 8 bits: their products with a word have 23 bits, 256 of which fit a 32-bit lane. A panel of columns is split once for all pairs. If
//! all words are small, h is omitted.

/// Columns of a panel: 4 KiB per vector, so that a panel of a hundred vectors stays in a second-level cache.
pub(super) const PANEL: usize = 2048;
/// Number of rows multiplied with as many others at a time.
pub(super) const SIDE: usize = 4;
/// One vector's words of a panel.
pub(super) type Row = [i16; PANEL];

/// The inner products of [`SIDE`] rows with [`SIDE`] others.
pub(super) type Products = [[i64; SIDE]; SIDE];

/// Portable implementation. The products of `left` and `right` words must have at most 23 bits.
#[inline(always)]
pub(super) fn products(left: &[Row], right: &[Row]) -> Products {
    /// Number of columns with products that fit a 32-bit sum.
    const PART: usize = 256;
    let mut products = [[0; SIDE]; SIDE];
    for (row, left) in products.iter_mut().zip(left) {
        for (product, right) in row.iter_mut().zip(right) {
            for (left, right) in left.chunks_exact(PART).zip(right.chunks_exact(PART)) {
                let part: i32 = left.iter().zip(right).map(|(left, right)| i32::from(*left) * i32::from(*right)).sum();
                *product += i64::from(part);
            }
        }
    }
    products
}
