//! The common part of the vector kernels: the initial state of a mask, and the double round.

use secure_agg::mask::{self, MaskSeed, Plane, WORDS_PER_BLOCK, WORDS_PER_NONCE};

/// Words of a block.
pub(super) const BLOCK_WORDS: usize = 16;
/// Double rounds of ChaCha20.
pub(super) const DOUBLE_ROUNDS: usize = 10;

/// The state of RFC 8439 §2.3 for the block starting with word `index`.
pub(super) fn initial_state(seed: &MaskSeed, plane: Plane, index: u64) -> [u32; BLOCK_WORDS] {
    debug_assert_eq!(index % WORDS_PER_BLOCK, 0, "vector kernels start on a block");
    let mut state = [0; BLOCK_WORDS];
    state[..4].copy_from_slice(&[0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574]);
    let (key, _) = seed.expose().as_chunks::<4>();
    for (word, bytes) in state[4..12].iter_mut().zip(key) {
        *word = u32::from_le_bytes(*bytes);
    }
    state[12] = u32::try_from(index % WORDS_PER_NONCE / WORDS_PER_BLOCK).expect("a nonce has 2^20 blocks");
    let nonce = mask::nonce(plane, index);
    let (nonce, _) = nonce.as_chunks::<4>();
    for (word, bytes) in state[13..].iter_mut().zip(nonce) {
        *word = u32::from_le_bytes(*bytes);
    }
    state
}

/// One double round over an array of sixteen vectors, with the vector operations in scope at the call.
macro_rules! double_round {
    ($state:ident, $quarter:ident) => {
        $quarter!($state, 0, 4, 8, 12);
        $quarter!($state, 1, 5, 9, 13);
        $quarter!($state, 2, 6, 10, 14);
        $quarter!($state, 3, 7, 11, 15);
        $quarter!($state, 0, 5, 10, 15);
        $quarter!($state, 1, 6, 11, 12);
        $quarter!($state, 2, 7, 8, 13);
        $quarter!($state, 3, 4, 9, 14);
    };
}
pub(super) use double_round;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_is_laid_out_as_in_the_rfc() {
        let mut key: [u8; 32] = std::array::from_fn(|i| i.to_le_bytes()[0]);
        let index = 9 * WORDS_PER_NONCE + 16;
        let state = initial_state(&MaskSeed::new(&mut key), Plane::HomomorphicKey, index);
        assert_eq!(state[..6], [0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574, 0x0302_0100, 0x0706_0504]);
        assert_eq!(state[11..], [0x1f1e_1d1c, 1, 9, 2, 0]);
    }
}
