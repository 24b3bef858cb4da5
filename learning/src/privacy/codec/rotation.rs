//! Randomised Hadamard rotation: spreads an update evenly over its coordinates, so that few bits are enough for each.
//!
//! `x` becomes `H diag(signs) x / sqrt(D)` in blocks of a power of two, with signs from a public seed. It is
//! orthogonal, so it preserves norms and sums, and privacy does not depend on the seed. The order of operations is
//! fixed, so every device gets the same bits.

use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha20Rng;

/// Largest block; longer vectors are cut into several, so that a block fits into a cache.
const BLOCK: usize = 1 << 20;
/// Smallest block; also pads the remainder.
const BLOCK_MIN: usize = 1 << 10;

/// Length of a rotated vector: `length` plus the padding of its last block.
#[must_use]
pub fn padded(length: usize) -> usize {
    let rest = length % BLOCK;
    if rest == 0 {
        length
    } else {
        length - rest + rest.next_power_of_two().max(BLOCK_MIN.min(length.next_power_of_two()))
    }
}

/// Rotates a vector of a [`padded`] length in place.
pub fn rotate(values: &mut [f64], seed: &[u8; 32]) {
    let mut signs = Signs::new(seed);
    for block in blocks(values) {
        signs.apply(block);
        hadamard(block);
    }
}

/// Slices for separate inverse rotation start at multiples of this many values.
pub const SLICE: usize = BLOCK;

/// Undoes [`rotate`] slice by slice, in order, up to rounding.
pub struct RotateBack(Signs);

impl RotateBack {
    /// Begins with the first slice.
    #[must_use]
    pub fn new(seed: &[u8; 32]) -> Self {
        Self(Signs::new(seed))
    }

    /// Rotates the next slice back: a multiple of [`SLICE`] values, or the rest.
    pub fn next(&mut self, values: &mut [f64]) {
        for block in blocks(values) {
            hadamard(block);
            self.0.apply(block);
        }
    }
}

fn blocks(values: &mut [f64]) -> impl Iterator<Item = &mut [f64]> {
    debug_assert_eq!(values.len(), padded(values.len()));
    values.chunks_mut(BLOCK)
}

/// Random signs from a public seed, consumed in order.
pub(crate) struct Signs(ChaCha20Rng);

impl Signs {
    pub(crate) fn new(seed: &[u8; 32]) -> Self {
        Self(ChaCha20Rng::from_seed(*seed))
    }

    pub(crate) fn apply(&mut self, values: &mut [f64]) {
        for run in values.chunks_mut(64) {
            let word = self.0.next_u64();
            for (bit, value) in run.iter_mut().enumerate() {
                if (word >> bit) & 1 == 1 {
                    *value = -*value;
                }
            }
        }
    }
}

/// The orthonormal Walsh-Hadamard transform; the length is a power of two.
pub(crate) fn hadamard(values: &mut [f64]) {
    let mut half = 1;
    while half < values.len() {
        for pair in values.chunks_exact_mut(2 * half) {
            let (low, high) = pair.split_at_mut(half);
            for (a, b) in low.iter_mut().zip(high) {
                (*a, *b) = (*a + *b, *a - *b);
            }
        }
        half *= 2;
    }
    let norm = 1.0 / (values.len() as f64).sqrt();
    values.iter_mut().for_each(|value| *value *= norm);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pads_to_blocks() {
        for (length, expected) in
            [(1, 1), (3, 4), (1000, 1024), (7850, 8192), (BLOCK, BLOCK), (BLOCK + 1, BLOCK + 1024), (3 << 19, 3 << 19)]
        {
            assert_eq!(padded(length), expected, "{length}");
            assert_eq!(padded(padded(length)), expected, "{length}");
        }
    }

    #[test]
    fn keeps_norms_spreads_values_and_comes_back() {
        let mut values = vec![0.0; padded(5000)];
        values[17] = 3.0;
        values[4711] = -4.0;
        let original = values.clone();
        rotate(&mut values, &[7; 32]);
        let norm = values.iter().map(|v| v * v).sum::<f64>().sqrt();
        assert!((norm - 5.0).abs() < 1e-12, "{norm}");
        assert!(values.iter().all(|v| v.abs() <= 7.0 / 8192_f64.sqrt() + 1e-12));
        let mut other = original.clone();
        rotate(&mut other, &[8; 32]);
        assert!((9..13).any(|seed| {
            let mut third = original.clone();
            rotate(&mut third, &[seed; 32]);
            third != other
        }));
        RotateBack::new(&[7; 32]).next(&mut values);
        assert!(values.iter().zip(&original).all(|(a, b)| (a - b).abs() < 1e-12));
    }

    #[test]
    fn slices_are_rotated_back_like_the_whole() {
        let mut whole: Vec<f64> = (0..padded(2 * SLICE + 3000)).map(|n| (n % 1013) as f64).collect();
        let mut slices = whole.clone();
        RotateBack::new(&[3; 32]).next(&mut whole);
        let mut rotation = RotateBack::new(&[3; 32]);
        slices.chunks_mut(SLICE).for_each(|slice| rotation.next(slice));
        assert!(slices == whole);
    }
}
