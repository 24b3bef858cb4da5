//! Code shared by the kernels of every width, expanded in each with its own features of the processor.

/// The tiles of a kernel with `$lanes` blocks side by side, and the masks of a plan summed in them. The kernel provides `expand`, which
/// adds a mask to tiles, and `transpose`.
macro_rules! masks {
    ($features:literal, $lanes:literal) => {
        /// Number of parallel blocks: the 32-bit lanes of a vector.
        const LANES: usize = $lanes;
        type Row = [u32; LANES];
        /// As many blocks: row `w` is word `w` of each.
        type Tile = [Row; BLOCK_WORDS];
        const TILE_WORDS: usize = BLOCK_WORDS * LANES;
        const TILES: usize = BATCH / TILE_WORDS;

        /// Applies all masks to at most [`BATCH`] words of one nonce, from the start of a block, and reduces them.
        #[target_feature(enable = $features)]
        pub(super) fn apply_masks(plan: &MaskPlan, offset: u64, words: &mut [u32]) {
            let mut masks: [Tile; TILES] = [[[0; LANES]; BLOCK_WORDS]; TILES];
            let masks = &mut masks[..words.len().div_ceil(TILE_WORDS)];
            for (seed, sign) in plan.masks() {
                let mut state = initial_state(seed, plan.plane(), offset);
                match sign {
                    Sign::Add => expand::<false>(&state, masks),
                    Sign::Subtract => expand::<true>(&state, masks),
                }
                state.zeroize();
            }
            for (words, tile) in words.chunks_mut(TILE_WORDS).zip(masks) {
                transpose(tile);
                let kept = plan.modulus().max_word();
                for (word, mask) in words.iter_mut().zip(tile.as_flattened()) {
                    *word = word.wrapping_add(*mask) & kept;
                }
            }
        }
    };
}
pub(super) use masks;

/// The portable code, compiled for these features.
#[cfg(target_arch = "x86_64")]
macro_rules! compiled {
    ($features:literal) => {
        /// [`unpack::add_words`], compiled for this processor.
        #[target_feature(enable = $features)]
        pub(super) fn add_words(sum: &mut [u32], words: &[u32]) {
            unpack::add_words(sum, words);
        }

        /// [`select::median`], compiled for this processor.
        #[target_feature(enable = $features)]
        pub(super) fn median(tiles: &[select::Row], vectors: usize, out: &mut [i32]) {
            select::median(tiles, vectors, out);
        }

        /// [`select::trimmed_sum`], compiled for this processor.
        #[target_feature(enable = $features)]
        pub(super) fn trimmed_sum(tiles: &[select::Row], vectors: usize, trim: usize, out: &mut [i32]) {
            select::trimmed_sum(tiles, vectors, trim, out);
        }
    };
}
#[cfg(target_arch = "x86_64")]
pub(super) use compiled;
