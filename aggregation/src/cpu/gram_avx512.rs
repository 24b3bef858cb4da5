//! Inner products with 512-bit vectors: 32 multiplications and additions in one instruction.

use std::arch::x86_64::*;

use super::gram::{Products, Row, SIDE};

/// Words of a vector.
const LANES: usize = 32;

/// Whether this processor has the required instructions.
pub(super) fn is_available() -> bool {
    super::avx512::is_available() && is_x86_feature_detected!("avx512vnni")
}

/// See [`super::gram::products`]. A lane accumulates 64 sums of two products, which must stay below 2^31.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub(super) fn products(left: &[Row], right: &[Row]) -> Products {
    let (left, right) = (&left[..SIDE], &right[..SIDE]);
    let mut sums = [[_mm512_setzero_si512(); SIDE]; SIDE];
    for at in (0..left[0].len()).step_by(LANES) {
        let others = [load(&right[0], at), load(&right[1], at), load(&right[2], at), load(&right[3], at)];
        for (sums, row) in sums.iter_mut().zip(left) {
            let words = load(row, at);
            for (sum, other) in sums.iter_mut().zip(others) {
                *sum = _mm512_dpwssd_epi32(*sum, words, other);
            }
        }
    }
    // No closures: functions called from them would not be inlined, which costs as much as the products of a panel.
    let mut products = [[0; SIDE]; SIDE];
    for (products, sums) in products.iter_mut().zip(sums) {
        for (product, sum) in products.iter_mut().zip(sums) {
            *product = total(sum);
        }
    }
    products
}

/// The sum of the sixteen lanes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn total(sum: __m512i) -> i64 {
    let low = _mm512_cvtepi32_epi64(_mm512_castsi512_si256(sum));
    let high = _mm512_cvtepi32_epi64(_mm512_extracti64x4_epi64::<1>(sum));
    _mm512_reduce_add_epi64(_mm512_add_epi64(low, high))
}

/// Words `at..at + 32` of the row.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn load(row: &Row, at: usize) -> __m512i {
    let words: &[i16; LANES] = row[at..at + LANES].try_into().expect("the slice has that length");
    #[expect(unsafe_code, reason = "the load takes a raw pointer")]
    // SAFETY: `words` is 64 readable bytes, and the load requires no alignment.
    unsafe {
        _mm512_loadu_si512(words.as_ptr().cast())
    }
}
