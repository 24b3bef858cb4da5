//! ChaCha20 masks with 128-bit vectors of ARM, four blocks at a time; laid out like `avx512`, whose comments apply here.

use std::arch::aarch64::*;
use std::arch::is_aarch64_feature_detected;

use secure_agg::mask::{MaskPlan, Sign};
use zeroize::Zeroize;

use super::batch::BATCH;
use super::chacha::{BLOCK_WORDS, DOUBLE_ROUNDS, double_round, initial_state};
use super::width::masks;

masks!("neon", 4);

/// Whether this processor has the required instructions.
pub(super) fn is_available() -> bool {
    is_aarch64_feature_detected!("neon")
}

/// Adds one mask to consecutive tiles, or subtracts it.
#[target_feature(enable = "neon")]
fn expand<const NEGATIVE: bool>(state: &[u32; BLOCK_WORDS], tiles: &mut [Tile]) {
    let mut initial = [vdupq_n_u32(0); BLOCK_WORDS];
    for (vector, word) in initial.iter_mut().zip(state) {
        *vector = vdupq_n_u32(*word);
    }
    initial[12] = vaddq_u32(initial[12], load(&[0, 1, 2, 3]));
    let next_tile = vdupq_n_u32(4);
    // A rotation by 8 bits is a byte shuffle.
    let by_8 = vreinterpretq_u8_u32(load(&[0x0201_0003, 0x0605_0407, 0x0a09_080b, 0x0e0d_0c0f]));
    for tile in tiles {
        let mut x = initial;
        macro_rules! quarter {
            ($x:ident, $a:expr, $b:expr, $c:expr, $d:expr) => {
                $x[$a] = vaddq_u32($x[$a], $x[$b]);
                $x[$d] = rotate_by_16(veorq_u32($x[$d], $x[$a]));
                $x[$c] = vaddq_u32($x[$c], $x[$d]);
                $x[$b] = rotate::<12, 20>(veorq_u32($x[$b], $x[$c]));
                $x[$a] = vaddq_u32($x[$a], $x[$b]);
                let d = vreinterpretq_u8_u32(veorq_u32($x[$d], $x[$a]));
                $x[$d] = vreinterpretq_u32_u8(vqtbl1q_u8(d, by_8));
                $x[$c] = vaddq_u32($x[$c], $x[$d]);
                $x[$b] = rotate::<7, 25>(veorq_u32($x[$b], $x[$c]));
            };
        }
        for _ in 0..DOUBLE_ROUNDS {
            double_round!(x, quarter);
        }
        for ((row, x), initial) in tile.iter_mut().zip(x).zip(initial) {
            let mask = vaddq_u32(x, initial);
            let sum = load(row);
            store(row, if NEGATIVE { vsubq_u32(sum, mask) } else { vaddq_u32(sum, mask) });
        }
        initial[12] = vaddq_u32(initial[12], next_tile);
    }
    initial.zeroize();
}

#[target_feature(enable = "neon")]
fn rotate_by_16(vector: uint32x4_t) -> uint32x4_t {
    vreinterpretq_u32_u16(vrev32q_u16(vreinterpretq_u16_u32(vector)))
}

#[target_feature(enable = "neon")]
fn rotate<const LEFT: i32, const RIGHT: i32>(vector: uint32x4_t) -> uint32x4_t {
    vsriq_n_u32::<RIGHT>(vshlq_n_u32::<LEFT>(vector), vector)
}

/// Transposes a tile of rows (word `w` of every block) into blocks.
#[target_feature(enable = "neon")]
fn transpose(tile: &mut Tile) {
    let mut blocks = [vdupq_n_u32(0); BLOCK_WORDS];
    for j in 0..4 {
        let rows = [load(&tile[4 * j]), load(&tile[4 * j + 1]), load(&tile[4 * j + 2]), load(&tile[4 * j + 3])];
        let even = vreinterpretq_u64_u32(vtrn1q_u32(rows[0], rows[1]));
        let odd = vreinterpretq_u64_u32(vtrn2q_u32(rows[0], rows[1]));
        let next_even = vreinterpretq_u64_u32(vtrn1q_u32(rows[2], rows[3]));
        let next_odd = vreinterpretq_u64_u32(vtrn2q_u32(rows[2], rows[3]));
        // blocks[4·k + j] are words 4·j..4·j+4 of block k.
        blocks[j] = vreinterpretq_u32_u64(vtrn1q_u64(even, next_even));
        blocks[4 + j] = vreinterpretq_u32_u64(vtrn1q_u64(odd, next_odd));
        blocks[8 + j] = vreinterpretq_u32_u64(vtrn2q_u64(even, next_even));
        blocks[12 + j] = vreinterpretq_u32_u64(vtrn2q_u64(odd, next_odd));
    }
    for (row, block) in tile.iter_mut().zip(blocks) {
        store(row, block);
    }
}

#[target_feature(enable = "neon")]
fn load(row: &Row) -> uint32x4_t {
    #[expect(unsafe_code, reason = "the load takes a raw pointer")]
    // SAFETY: `row` is 16 readable bytes, and the load requires no alignment beyond that of a word.
    unsafe {
        vld1q_u32(row.as_ptr())
    }
}

#[target_feature(enable = "neon")]
fn store(row: &mut Row, vector: uint32x4_t) {
    #[expect(unsafe_code, reason = "the store takes a raw pointer")]
    // SAFETY: `row` is 16 exclusively borrowed, writable bytes, and the store requires no alignment beyond a word's.
    unsafe {
        vst1q_u32(row.as_mut_ptr(), vector);
    }
}
