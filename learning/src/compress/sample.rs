//! Coordinates drawn from a shared seed: the same on every device.

use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha20Rng;

/// Stream of a round's seed for drawing coordinates; signs and bases use others.
const STREAM: u64 = 1;

/// `taken` of `0..of`, ascending, each equally likely (Knuth, The Art of Computer Programming 2, algorithm 3.4.2 S).
pub(super) struct Sample {
    rng: ChaCha20Rng,
    next: usize,
    of: usize,
    wanted: usize,
}

impl Sample {
    /// `taken` is at most `of`, which is below 2^32.
    pub(super) fn new(seed: &[u8; 32], of: usize, taken: usize) -> Self {
        let mut rng = ChaCha20Rng::from_seed(*seed);
        rng.set_stream(STREAM);
        Self { rng, next: 0, of, wanted: taken }
    }
}

impl Iterator for Sample {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        if self.wanted == 0 {
            return None;
        }
        loop {
            let index = self.next;
            let left = (self.of - index) as u64;
            self.next += 1;
            // Uniform below `left`, to 2^-32.
            if (u64::from(self.rng.next_u32()) * left) >> 32 < self.wanted as u64 {
                self.wanted -= 1;
                return Some(index);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_as_many_as_asked_for_and_each_equally_often() {
        let mut times = [0_u32; 20];
        for seed in 0..2000_u16 {
            let mut key = [0; 32];
            key[..2].copy_from_slice(&seed.to_le_bytes());
            let drawn: Vec<usize> = Sample::new(&key, 20, 7).collect();
            assert_eq!(drawn.len(), 7);
            assert!(drawn.is_sorted_by(|a, b| a < b) && drawn[6] < 20);
            drawn.iter().for_each(|&index| times[index] += 1);
        }
        // 700 expected, standard deviation 21.
        assert!(times.iter().all(|&times| (600..800).contains(&times)), "{times:?}");
        assert_eq!(Sample::new(&[3; 32], 5, 5).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    }
}
