//! ChaCha20 masks with 256-bit vectors, eight blocks at a time; laid out like `avx512`, whose comments apply here.

use std::arch::x86_64::*;

use secure_agg::mask::{MaskPlan, Sign};
use zeroize::Zeroize;

use super::batch::BATCH;
use super::chacha::{BLOCK_WORDS, DOUBLE_ROUNDS, double_round, initial_state};
use super::select;
use super::unpack;
use super::width::{compiled, masks};

masks!("avx2", 8);

/// Whether this processor has the required instructions.
pub(super) fn is_available() -> bool {
    is_x86_feature_detected!("avx2")
}

/// Adds one mask to consecutive tiles, or subtracts it.
#[target_feature(enable = "avx2")]
fn expand<const NEGATIVE: bool>(state: &[u32; BLOCK_WORDS], tiles: &mut [Tile]) {
    let mut initial = [_mm256_setzero_si256(); BLOCK_WORDS];
    for (vector, word) in initial.iter_mut().zip(state) {
        *vector = _mm256_set1_epi32(word.cast_signed());
    }
    initial[12] = _mm256_add_epi32(initial[12], _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0));
    let next_tile = _mm256_set1_epi32(8);
    // Rotations by whole bytes take a single shuffle.
    let by_16 = _mm256_broadcastsi128_si256(_mm_set_epi8(13, 12, 15, 14, 9, 8, 11, 10, 5, 4, 7, 6, 1, 0, 3, 2));
    let by_8 = _mm256_broadcastsi128_si256(_mm_set_epi8(14, 13, 12, 15, 10, 9, 8, 11, 6, 5, 4, 7, 2, 1, 0, 3));
    for tile in tiles {
        let mut x = initial;
        macro_rules! quarter {
            ($x:ident, $a:expr, $b:expr, $c:expr, $d:expr) => {
                $x[$a] = _mm256_add_epi32($x[$a], $x[$b]);
                $x[$d] = _mm256_shuffle_epi8(_mm256_xor_si256($x[$d], $x[$a]), by_16);
                $x[$c] = _mm256_add_epi32($x[$c], $x[$d]);
                $x[$b] = rotate::<12, 20>(_mm256_xor_si256($x[$b], $x[$c]));
                $x[$a] = _mm256_add_epi32($x[$a], $x[$b]);
                $x[$d] = _mm256_shuffle_epi8(_mm256_xor_si256($x[$d], $x[$a]), by_8);
                $x[$c] = _mm256_add_epi32($x[$c], $x[$d]);
                $x[$b] = rotate::<7, 25>(_mm256_xor_si256($x[$b], $x[$c]));
            };
        }
        for _ in 0..DOUBLE_ROUNDS {
            double_round!(x, quarter);
        }
        for ((row, x), initial) in tile.iter_mut().zip(x).zip(initial) {
            let mask = _mm256_add_epi32(x, initial);
            let sum = load(row);
            store(row, if NEGATIVE { _mm256_sub_epi32(sum, mask) } else { _mm256_add_epi32(sum, mask) });
        }
        initial[12] = _mm256_add_epi32(initial[12], next_tile);
    }
    initial.zeroize();
}

/// Rotates every lane left by `LEFT`, where `LEFT + RIGHT` is 32.
#[target_feature(enable = "avx2")]
fn rotate<const LEFT: i32, const RIGHT: i32>(vector: __m256i) -> __m256i {
    _mm256_or_si256(_mm256_slli_epi32::<LEFT>(vector), _mm256_srli_epi32::<RIGHT>(vector))
}

/// Transposes a tile of rows (word `w` of every block) into blocks of sixteen words, each two rows long.
#[target_feature(enable = "avx2")]
fn transpose(tile: &mut Tile) {
    let zero = _mm256_setzero_si256();
    let mut fours = [zero; 16];
    for i in 0..4 {
        let rows = [load(&tile[4 * i]), load(&tile[4 * i + 1]), load(&tile[4 * i + 2]), load(&tile[4 * i + 3])];
        let (low, high) = (_mm256_unpacklo_epi32(rows[0], rows[1]), _mm256_unpackhi_epi32(rows[0], rows[1]));
        let (next_low, next_high) = (_mm256_unpacklo_epi32(rows[2], rows[3]), _mm256_unpackhi_epi32(rows[2], rows[3]));
        fours[4 * i] = _mm256_unpacklo_epi64(low, next_low);
        fours[4 * i + 1] = _mm256_unpackhi_epi64(low, next_low);
        fours[4 * i + 2] = _mm256_unpacklo_epi64(high, next_high);
        fours[4 * i + 3] = _mm256_unpackhi_epi64(high, next_high);
    }
    // Half k of fours[4·j + c] holds words 4·j..4·j+4 of block 4·k + c.
    for c in 0..4 {
        for half in 0..2 {
            let (even, odd) = (fours[8 * half + c], fours[8 * half + 4 + c]);
            store(&mut tile[2 * c + half], _mm256_permute2x128_si256::<0x20>(even, odd));
            store(&mut tile[8 + 2 * c + half], _mm256_permute2x128_si256::<0x31>(even, odd));
        }
    }
}

#[target_feature(enable = "avx2")]
fn load(row: &Row) -> __m256i {
    #[expect(unsafe_code, reason = "the load takes a raw pointer")]
    // SAFETY: `row` is 32 readable bytes, and the load requires no alignment.
    unsafe {
        _mm256_loadu_si256(row.as_ptr().cast())
    }
}

#[target_feature(enable = "avx2")]
fn store(row: &mut Row, vector: __m256i) {
    #[expect(unsafe_code, reason = "the store takes a raw pointer")]
    // SAFETY: `row` is 32 exclusively borrowed, writable bytes, and the store requires no alignment.
    unsafe {
        _mm256_storeu_si256(row.as_mut_ptr().cast(), vector);
    }
}

compiled!("avx2");
