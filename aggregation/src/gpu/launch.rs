//! Splits the masks of a piece of a vector into launches.

use std::ops::Range;

use secure_agg::mask::{self, Plane, WORDS_PER_NONCE};

/// Capacity of a device, and how to split its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Maximum number of words in a buffer: a power of two from [`SHORTEST_PIECE`](super::SHORTEST_PIECE) to
    /// [`LONGEST_PIECE`](super::LONGEST_PIECE).
    pub(crate) piece_words: usize,
    /// Number of concurrent threads. Fewer would leave parts of the device idle.
    pub(crate) threads: usize,
    /// Bytes of keystream per launch: at most 50 ms of the device's work, to satisfy watchdogs and other users of the device.
    pub(crate) launch_bytes: u64,
}

/// One launch of the mask kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Launch {
    /// Words of the piece.
    pub(crate) words: usize,
    /// The ChaCha20 block of its first word.
    pub(crate) first_block: u32,
    /// The first two words of the nonce; the third is zero.
    pub(crate) nonce: [u32; 2],
    pub(crate) seeds: Range<u32>,
    /// Number of parts into which the seeds are split, to use more threads than the piece has blocks.
    pub(crate) parts: u32,
}

/// Least number of seeds per part, so that atomic additions stay few compared to the arithmetic.
const SEEDS_OF_A_PART: usize = 4;
/// Number of waves per launch, so that the last, incomplete one wastes little.
const WAVES: usize = 16;
/// Words of a ChaCha20 block, the share of a thread.
const BLOCK_WORDS: usize = 16;
/// Maximum number of parts: the limit of a launch's second dimension on every device.
const MOST_PARTS: usize = 65_535;

impl Launch {
    /// Number of blocks in the piece, with one thread each per part.
    pub(crate) const fn blocks(&self) -> usize {
        self.words.div_ceil(BLOCK_WORDS)
    }

    /// All launches applying `seeds` masks to the `words` words at `offset` of a vector on `plane`. The piece lies within one nonce and
    /// starts on a block.
    pub(crate) fn all(plane: Plane, offset: u64, words: usize, seeds: usize, limits: Limits) -> Vec<Self> {
        debug_assert!(offset % WORDS_PER_NONCE + words as u64 <= WORDS_PER_NONCE, "a piece has one nonce");
        debug_assert!(offset.is_multiple_of(BLOCK_WORDS as u64), "a piece starts on a block");
        let nonce = mask::nonce(plane, offset);
        let (nonce, _) = nonce.as_chunks::<4>();
        let nonce = [u32::from_le_bytes(nonce[0]), u32::from_le_bytes(nonce[1])];
        let first_block = small(usize::try_from(offset % WORDS_PER_NONCE / BLOCK_WORDS as u64).unwrap_or(usize::MAX));
        let blocks = words.div_ceil(BLOCK_WORDS);
        let most = usize::try_from(limits.launch_bytes / (64 * blocks as u64)).unwrap_or(usize::MAX).max(1);
        // Launches of equal size, to avoid one with a handful of seeds.
        let each = seeds.div_ceil(seeds.div_ceil(most).max(1)).max(1);
        (0..seeds)
            .step_by(each)
            .map(|first| {
                let taken = each.min(seeds - first);
                let parts = (WAVES * limits.threads).div_ceil(blocks).min(taken.div_ceil(SEEDS_OF_A_PART));
                let seeds = small(first)..small(first + taken);
                Self { words, first_block, nonce, seeds, parts: small(parts.clamp(1, MOST_PARTS)) }
            })
            .collect()
    }
}

/// Blocks of a nonce and seeds of a list are far below 2^32.
fn small(number: usize) -> u32 {
    u32::try_from(number).expect("a piece has at most 2^20 blocks and a list at most 2^16 seeds")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { piece_words: 1 << 24, threads: 1000, launch_bytes: 64_000 };

    fn all(offset: u64, words: usize, seeds: usize) -> Vec<Launch> {
        Launch::all(Plane::Scalars, offset, words, seeds, LIMITS)
    }

    #[test]
    fn every_seed_is_launched_once_and_no_launch_is_too_long() {
        for words in [1, 16, 17, 10_000, 160_000] {
            for seeds in [0, 1, 2, 99, 1000] {
                let launches = all(WORDS_PER_NONCE + 32, words, seeds);
                let listed: Vec<u32> = launches.iter().flat_map(|launch| launch.seeds.clone()).collect();
                assert_eq!(listed, (0..small(seeds)).collect::<Vec<_>>(), "{words} words, {seeds} seeds");
                for launch in &launches {
                    assert!(launch.seeds.len() == 1 || launch.seeds.len() * launch.blocks() * 64 <= 64_000);
                    assert_eq!((launch.first_block, launch.nonce), (2, [1, 1]));
                }
            }
        }
    }

    #[test]
    fn short_vectors_split_their_seeds_and_long_ones_do_not() {
        assert_eq!(all(0, 16, 1000)[0].parts, 250);
        assert_eq!(all(0, 16, 3)[0].parts, 1);
        let long = Launch::all(Plane::Model, 0, 1 << 24, 1000, Limits { launch_bytes: u64::MAX, ..LIMITS });
        assert_eq!((long.len(), long[0].parts), (1, 1));
    }
}
