//! Expansion of a seed to a mask, which every participant and every device must reproduce bit for bit.
//!
//! Word `i` of the mask of a key on a plane is (`fl-secagg/1`, specification §3; block function: RFC 8439 §2.3)
//!
//! ```text
//! ChaCha20(key, nonce = u32le(i >> 24) || u32le(plane) || 0^4, block = (i & (2^24 - 1)) >> 4)[i & 15]
//! ```
//!
//! Each word is a function of its index alone, so any slice of a vector can be unmasked anywhere, in any order. A
//! [`MaskPlan`] lists the masks to add to a vector or to remove from a sum; this module applies it with the portable
//! cipher, which phones run and which faster devices are tested against. No device-specific code belongs here.

use chacha20::ChaCha20;
use chacha20::cipher::{KeyIvInit, StreamCipher, StreamCipherSeek};
use thiserror::Error;
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::modular::{self, Modulus};

/// Words that share a nonce: `2^24` words are `2^20` blocks of one key and nonce.
pub const WORDS_PER_NONCE: u64 = 1 << 24;
/// Words of one ChaCha20 block.
pub const WORDS_PER_BLOCK: u64 = 16;
/// Maximum length of a plan's vector, in words (16 GiB of keystream per mask).
pub const MAX_WORDS: u64 = 1 << 32;

/// The ChaCha20 key of one mask: a pair key or a self key of one session. Erased when dropped.
#[derive(Zeroize, ZeroizeOnDrop)]
pub struct MaskSeed([u8; 32]);

impl MaskSeed {
    /// Takes a key that the caller derived, and erases the caller's copy.
    #[must_use]
    pub fn new(key: &mut [u8; 32]) -> Self {
        let seed = Self(*key);
        key.zeroize();
        seed
    }

    /// The key, for the code that expands it. Never log, store or send it.
    #[must_use]
    pub const fn expose(&self) -> &[u8; 32] {
        &self.0
    }
}

/// Whether a mask is added or subtracted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Sign {
    Add,
    Subtract,
}

/// The vector of a session that a mask is for; the same key gives independent masks on different planes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Plane {
    Model,
    /// Scalars and metrics.
    Scalars,
    /// The key of the key-homomorphic plane.
    HomomorphicKey,
}

impl Plane {
    /// The plane's number in the nonce.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::Model => 0,
            Self::Scalars => 1,
            Self::HomomorphicKey => 2,
        }
    }
}

/// Reasons a plan cannot be built or applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum MaskError {
    /// The vector is longer than [`MAX_WORDS`].
    #[error("a mask plan covers at most {MAX_WORDS} words, {words} were asked for")]
    TooLong { words: u64 },
    /// The slice does not lie inside the vector of the plan.
    #[error("words {offset}..+{len} lie outside the plan's vector of {words} words")]
    OutOfRange {
        /// Index of the first word of the slice.
        offset: u64,
        /// Words of the slice.
        len: usize,
        /// Words of the plan's vector.
        words: u64,
    },
}

/// The masks to apply to one vector of a session: on a client its own masks, on a server those that remain in the sum.
///
/// Without secure aggregation the plan is empty: applying it only reduces. Like the seeds it holds, a plan can be
/// neither copied nor printed, and is erased when dropped.
pub struct MaskPlan {
    plane: Plane,
    words: u64,
    modulus: Modulus,
    seeds: Vec<MaskSeed>,
    signs: Vec<Sign>,
}

impl MaskPlan {
    /// An empty plan for a vector of `words` words modulo `modulus` on `plane`.
    ///
    /// # Errors
    /// [`MaskError::TooLong`] beyond [`MAX_WORDS`].
    pub const fn new(plane: Plane, words: u64, modulus: Modulus) -> Result<Self, MaskError> {
        if words > MAX_WORDS {
            return Err(MaskError::TooLong { words });
        }
        Ok(Self { plane, words, modulus, seeds: Vec::new(), signs: Vec::new() })
    }

    /// Adds one mask. The order of the masks does not matter.
    pub fn push(&mut self, seed: MaskSeed, sign: Sign) {
        if self.seeds.len() == self.seeds.capacity() {
            // A growing `Vec` would leave the keys in the memory it frees; dropping the old seeds erases them.
            let mut larger = Vec::with_capacity((2 * self.seeds.len()).max(16));
            larger.extend(self.seeds.iter().map(|seed| MaskSeed(seed.0)));
            self.seeds = larger;
        }
        self.seeds.push(seed);
        self.signs.push(sign);
    }

    #[must_use]
    pub const fn plane(&self) -> Plane {
        self.plane
    }

    /// Length of the vector, in words.
    #[must_use]
    pub const fn words(&self) -> u64 {
        self.words
    }

    /// The modulus of the vector.
    #[must_use]
    pub const fn modulus(&self) -> Modulus {
        self.modulus
    }

    #[must_use]
    pub const fn len(&self) -> usize {
        self.seeds.len()
    }

    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.seeds.is_empty()
    }

    /// Bytes of keystream needed to apply the plan to its whole vector.
    #[must_use]
    pub fn keystream_bytes(&self) -> u128 {
        4 * u128::from(self.words) * self.seeds.len() as u128
    }

    /// The masks, for the code that expands them.
    pub fn masks(&self) -> impl ExactSizeIterator<Item = (&MaskSeed, Sign)> {
        self.seeds.iter().zip(self.signs.iter().copied())
    }
}

/// Applies every mask of the plan to the words `offset..offset + words.len()` of its vector, then reduces them.
///
/// # Errors
/// [`MaskError::OutOfRange`] if the slice does not lie inside the plan's vector; `words` is then unchanged.
pub fn apply(plan: &MaskPlan, offset: u64, words: &mut [u32]) -> Result<(), MaskError> {
    let end = offset.checked_add(words.len() as u64);
    if end.is_none_or(|end| end > plan.words) {
        return Err(MaskError::OutOfRange { offset, len: words.len(), words: plan.words });
    }
    // A block and the keystream stay in the first-level cache while all masks are applied.
    const BLOCK: usize = 4096;
    let mut keystream = [0; KEYSTREAM];
    for (position, block) in (0u64..).zip(words.chunks_mut(BLOCK)) {
        let offset = offset + position * BLOCK as u64;
        for (seed, sign) in plan.masks() {
            expand_onto(seed, sign, plan.plane, offset, block, &mut keystream);
        }
        modular::reduce(block, plan.modulus);
    }
    keystream.zeroize();
    Ok(())
}

/// Bytes of keystream generated at a time.
const KEYSTREAM: usize = 4096;

/// Adds or subtracts one mask's words from index `offset` on, modulo 2^32.
fn expand_onto(
    seed: &MaskSeed,
    sign: Sign,
    plane: Plane,
    offset: u64,
    words: &mut [u32],
    keystream: &mut [u8; KEYSTREAM],
) {
    let mut offset = offset;
    let mut rest = words;
    while !rest.is_empty() {
        let left_of_nonce = usize::try_from(WORDS_PER_NONCE - offset % WORDS_PER_NONCE).unwrap_or(usize::MAX);
        let (same_nonce, after) = rest.split_at_mut(left_of_nonce.min(rest.len()));
        let mut cipher = ChaCha20::new(seed.expose().into(), &nonce(plane, offset).into());
        cipher.seek(4 * (offset % WORDS_PER_NONCE));
        add_keystream(&mut cipher, sign, same_nonce, keystream);
        offset += same_nonce.len() as u64;
        rest = after;
    }
}

/// The nonce of the word with index `index` (below 2^56, far above [`MAX_WORDS`]) on `plane`.
#[must_use]
pub fn nonce(plane: Plane, index: u64) -> [u8; 12] {
    let mut nonce = [0; 12];
    nonce[..4].copy_from_slice(&(index / WORDS_PER_NONCE).to_le_bytes()[..4]);
    nonce[4..8].copy_from_slice(&plane.number().to_le_bytes());
    nonce
}

fn add_keystream(cipher: &mut ChaCha20, sign: Sign, words: &mut [u32], keystream: &mut [u8; KEYSTREAM]) {
    for part in words.chunks_mut(KEYSTREAM / 4) {
        let stream = &mut keystream[..4 * part.len()];
        cipher.write_keystream(stream);
        let (masks, _) = stream.as_chunks::<4>();
        let masks = part.iter_mut().zip(masks.iter().map(|mask| u32::from_le_bytes(*mask)));
        match sign {
            Sign::Add => masks.for_each(|(word, mask)| *word = word.wrapping_add(mask)),
            Sign::Subtract => masks.for_each(|(word, mask)| *word = word.wrapping_sub(mask)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn plan(words: u64, bits: u8, plane: Plane, masks: &[(u8, Sign)]) -> MaskPlan {
        let mut plan = MaskPlan::new(plane, words, Modulus::new(bits).unwrap()).unwrap();
        for (byte, sign) in masks {
            plan.push(MaskSeed::new(&mut [*byte; 32]), *sign);
        }
        plan
    }

    #[test]
    fn taking_a_key_erases_the_callers_copy() {
        let mut key = [7; 32];
        let seed = MaskSeed::new(&mut key);
        assert_eq!(key, [0; 32]);
        assert_eq!(seed.expose(), &[7; 32]);
    }

    #[test]
    fn an_empty_plan_only_reduces() {
        let mut words = [0x0012_3456, 0xffff_ffff];
        apply(&plan(2, 16, Plane::Model, &[]), 0, &mut words).unwrap();
        assert_eq!(words, [0x3456, 0xffff]);
    }

    #[test]
    fn opposite_signs_cancel() {
        let masks = [(1, Sign::Add), (2, Sign::Subtract), (1, Sign::Subtract), (2, Sign::Add)];
        let mut words: Vec<u32> = (0..100).collect();
        apply(&plan(1000, 32, Plane::Scalars, &masks), 17, &mut words).unwrap();
        assert_eq!(words, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn a_plan_keeps_its_masks_while_it_grows() {
        let masks: Vec<(u8, Sign)> = (0..50).map(|byte| (byte, Sign::Add)).collect();
        let plan = plan(1, 32, Plane::Model, &masks);
        assert_eq!(plan.masks().map(|(seed, _)| seed.expose()[0]).collect::<Vec<_>>(), (0..50).collect::<Vec<_>>());
        assert_eq!(plan.keystream_bytes(), 200);
    }

    #[test]
    fn a_slice_outside_the_vector_is_refused_and_untouched() {
        let plan = plan(10, 32, Plane::Model, &[(1, Sign::Add)]);
        for (offset, len) in [(0, 11), (5, 6), (11, 0), (u64::MAX, 1)] {
            let mut words = vec![3; len];
            assert_eq!(apply(&plan, offset, &mut words), Err(MaskError::OutOfRange { offset, len, words: 10 }));
            assert!(words.iter().all(|word| *word == 3));
        }
        assert!(MaskPlan::new(Plane::Model, MAX_WORDS + 1, Modulus::new(32).unwrap()).is_err());
    }

    proptest! {
        #[test]
        fn slices_give_the_words_of_the_whole(
            start in prop_oneof![0u64..5000, WORDS_PER_NONCE - 3000..WORDS_PER_NONCE],
            cut in 0usize..3000,
            bits in 16u8..=32,
        ) {
            let masks = [(1, Sign::Add), (9, Sign::Subtract)];
            let plan = plan(2 * WORDS_PER_NONCE, bits, Plane::Model, &masks);
            let mut whole = vec![42; 3000];
            apply(&plan, start, &mut whole).unwrap();
            let mut parts = vec![42; 3000];
            let (left, right) = parts.split_at_mut(cut);
            apply(&plan, start + cut as u64, right).unwrap();
            apply(&plan, start, left).unwrap();
            prop_assert_eq!(whole, parts);
        }
    }
}
