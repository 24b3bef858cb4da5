//! Inner products with 256-bit vectors: 16 multiplications in one instruction, additions in a second.

use std::arch::x86_64::*;

use super::gram::{Products, Row, SIDE};

/// Words of a vector.
const LANES: usize = 16;
/// Number of rows multiplied with [`SIDE`] others at a time: of the 16 registers, 8 then hold sums.
const ROWS: usize = 2;

/// See [`super::gram::products`]. A lane accumulates 128 sums of two products, which must stay below 2^31.
#[target_feature(enable = "avx2")]
pub(super) fn products(left: &[Row], right: &[Row]) -> Products {
    let right = &right[..SIDE];
    let mut products = [[0; SIDE]; SIDE];
    for (products, left) in products.chunks_exact_mut(ROWS).zip(left.chunks_exact(ROWS)) {
        let mut sums = [[_mm256_setzero_si256(); SIDE]; ROWS];
        for at in (0..left[0].len()).step_by(LANES) {
            let others = [load(&right[0], at), load(&right[1], at), load(&right[2], at), load(&right[3], at)];
            for (sums, row) in sums.iter_mut().zip(left) {
                let words = load(row, at);
                for (sum, other) in sums.iter_mut().zip(others) {
                    *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(words, other));
                }
            }
        }
        for (products, sums) in products.iter_mut().zip(sums) {
            for (product, sum) in products.iter_mut().zip(sums) {
                *product = total(sum);
            }
        }
    }
    products
}

/// The sum of the eight lanes.
#[inline]
#[target_feature(enable = "avx2")]
fn total(sum: __m256i) -> i64 {
    let low = _mm256_cvtepi32_epi64(_mm256_castsi256_si128(sum));
    let high = _mm256_cvtepi32_epi64(_mm256_extracti128_si256::<1>(sum));
    let four = _mm256_add_epi64(low, high);
    let two = _mm_add_epi64(_mm256_castsi256_si128(four), _mm256_extracti128_si256::<1>(four));
    _mm_extract_epi64::<0>(two).wrapping_add(_mm_extract_epi64::<1>(two))
}

/// Words `at..at + 16` of the row.
#[target_feature(enable = "avx2")]
fn load(row: &Row, at: usize) -> __m256i {
    let words: &[i16; LANES] = row[at..at + LANES].try_into().expect("the slice has that length");
    #[expect(unsafe_code, reason = "the load takes a raw pointer")]
    // SAFETY: `words` is 32 readable bytes, and the load requires no alignment.
    unsafe {
        _mm256_loadu_si256(words.as_ptr().cast())
    }
}
