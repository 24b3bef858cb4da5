//! ChaCha20 masks with 512-bit vectors, sixteen blocks at a time.
//!
//! Vector `w` of a tile holds word `w` of sixteen consecutive blocks. All masks of a plan are summed in that layout, in a buffer within the
//! first-level cache, and the sum is transposed into the order of the vector once at the end.

use std::arch::x86_64::*;

use secure_agg::mask::{MaskPlan, Sign};
use zeroize::Zeroize;

use super::batch::BATCH;
use super::chacha::{BLOCK_WORDS, DOUBLE_ROUNDS, double_round, initial_state};
use super::select;
use super::unpack;
use super::width::{compiled, masks};

masks!("avx512f,avx512bw,avx512vl", 16);

/// Whether this processor has the required instructions.
pub(super) fn is_available() -> bool {
    super::avx2::is_available()
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
}

/// Adds one mask to consecutive tiles, or subtracts it.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn expand<const NEGATIVE: bool>(state: &[u32; BLOCK_WORDS], tiles: &mut [Tile]) {
    let mut initial = [_mm512_setzero_si512(); BLOCK_WORDS];
    for (vector, word) in initial.iter_mut().zip(state) {
        *vector = _mm512_set1_epi32(word.cast_signed());
    }
    let lane_numbers = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    initial[12] = _mm512_add_epi32(initial[12], lane_numbers);
    let next_tile = _mm512_set1_epi32(16);
    for tile in tiles {
        let mut x = initial;
        macro_rules! quarter {
            ($x:ident, $a:expr, $b:expr, $c:expr, $d:expr) => {
                $x[$a] = _mm512_add_epi32($x[$a], $x[$b]);
                $x[$d] = _mm512_rol_epi32::<16>(_mm512_xor_si512($x[$d], $x[$a]));
                $x[$c] = _mm512_add_epi32($x[$c], $x[$d]);
                $x[$b] = _mm512_rol_epi32::<12>(_mm512_xor_si512($x[$b], $x[$c]));
                $x[$a] = _mm512_add_epi32($x[$a], $x[$b]);
                $x[$d] = _mm512_rol_epi32::<8>(_mm512_xor_si512($x[$d], $x[$a]));
                $x[$c] = _mm512_add_epi32($x[$c], $x[$d]);
                $x[$b] = _mm512_rol_epi32::<7>(_mm512_xor_si512($x[$b], $x[$c]));
            };
        }
        for _ in 0..DOUBLE_ROUNDS {
            double_round!(x, quarter);
        }
        for ((row, x), initial) in tile.iter_mut().zip(x).zip(initial) {
            let mask = _mm512_add_epi32(x, initial);
            let sum = load(row);
            store(row, if NEGATIVE { _mm512_sub_epi32(sum, mask) } else { _mm512_add_epi32(sum, mask) });
        }
        initial[12] = _mm512_add_epi32(initial[12], next_tile);
    }
    initial.zeroize();
}

/// Transposes a tile of rows (word `w` of every block) into blocks.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn transpose(tile: &mut Tile) {
    let zero = _mm512_setzero_si512();
    let (mut pairs, mut fours) = ([zero; 16], [zero; 16]);
    for i in 0..8 {
        let (even, odd) = (load(&tile[2 * i]), load(&tile[2 * i + 1]));
        pairs[2 * i] = _mm512_unpacklo_epi32(even, odd);
        pairs[2 * i + 1] = _mm512_unpackhi_epi32(even, odd);
    }
    for i in 0..4 {
        fours[4 * i] = _mm512_unpacklo_epi64(pairs[4 * i], pairs[4 * i + 2]);
        fours[4 * i + 1] = _mm512_unpackhi_epi64(pairs[4 * i], pairs[4 * i + 2]);
        fours[4 * i + 2] = _mm512_unpacklo_epi64(pairs[4 * i + 1], pairs[4 * i + 3]);
        fours[4 * i + 3] = _mm512_unpackhi_epi64(pairs[4 * i + 1], pairs[4 * i + 3]);
    }
    // Quarter k of fours[4·j + c] holds words 4·j..4·j+4 of block 4·k + c; a 4×4 transpose of quarters remains.
    for c in 0..4 {
        let low_even = _mm512_shuffle_i32x4::<0x88>(fours[c], fours[4 + c]);
        let low_odd = _mm512_shuffle_i32x4::<0xdd>(fours[c], fours[4 + c]);
        let high_even = _mm512_shuffle_i32x4::<0x88>(fours[8 + c], fours[12 + c]);
        let high_odd = _mm512_shuffle_i32x4::<0xdd>(fours[8 + c], fours[12 + c]);
        store(&mut tile[c], _mm512_shuffle_i32x4::<0x88>(low_even, high_even));
        store(&mut tile[4 + c], _mm512_shuffle_i32x4::<0x88>(low_odd, high_odd));
        store(&mut tile[8 + c], _mm512_shuffle_i32x4::<0xdd>(low_even, high_even));
        store(&mut tile[12 + c], _mm512_shuffle_i32x4::<0xdd>(low_odd, high_odd));
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn load(row: &Row) -> __m512i {
    #[expect(unsafe_code, reason = "the load takes a raw pointer")]
    // SAFETY: `row` is 64 readable bytes, and the load requires no alignment.
    unsafe {
        _mm512_loadu_si512(row.as_ptr().cast())
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn store(row: &mut Row, vector: __m512i) {
    #[expect(unsafe_code, reason = "the store takes a raw pointer")]
    // SAFETY: `row` is 64 exclusively borrowed, writable bytes, and the store requires no alignment.
    unsafe {
        _mm512_storeu_si512(row.as_mut_ptr().cast(), vector);
    }
}

compiled!("avx512f,avx512bw,avx512vl");
