//! Integers modulo 2^b, held in `u32` words: the elements of masked vectors.
//!
//! Sums are taken in wrapping `u32` arithmetic and reduced once at the end. That is exact, because 2^b divides 2^32, so results are
//! independent of the order of the inputs and of the device. The caller maps floats to words.

use thiserror::Error;

/// The number of bits is outside [`Modulus::MIN_BITS`]`..=`[`Modulus::MAX_BITS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a modulus of 2^{bits} is not supported: the number of bits must be between 16 and 32")]
pub struct InvalidModulus {
    pub bits: u8,
}

/// The modulus 2^b of a session, with b in 16..=32.
///
/// ```
/// use secure_agg::modular::Modulus;
/// let modulus = Modulus::new(20)?;
/// assert_eq!(modulus.reduce(0xffff_ffff), 0x000f_ffff);
/// assert_eq!(modulus.centre(0x000f_ffff), -1);
/// assert_eq!(modulus.wrap(-1), 0x000f_ffff);
/// # Ok::<(), secure_agg::modular::InvalidModulus>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Modulus(u8);

impl Modulus {
    /// Fewest bits of a modulus.
    pub const MIN_BITS: u8 = 16;
    /// Most bits of a modulus: one whole keystream word per element.
    pub const MAX_BITS: u8 = 32;

    /// 2^32: reduction changes nothing, and words are packed as they are.
    pub const WORD: Self = Self(Self::MAX_BITS);

    /// The modulus 2^`bits`.
    ///
    /// # Errors
    /// [`InvalidModulus`] when `bits` is not in 16..=32.
    pub const fn new(bits: u8) -> Result<Self, InvalidModulus> {
        if bits < Self::MIN_BITS || bits > Self::MAX_BITS { Err(InvalidModulus { bits }) } else { Ok(Self(bits)) }
    }

    /// Number of bits b of the modulus 2^b, in 16..=32.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// 2^b - 1: the largest reduced word, and the mask of reduction.
    #[must_use]
    pub const fn max_word(self) -> u32 {
        u32::MAX >> (Self::MAX_BITS - self.0)
    }

    /// Reduces a word modulo 2^b.
    #[must_use]
    pub const fn reduce(self, word: u32) -> u32 {
        word & self.max_word()
    }

    /// The integer in [-2^(b-1), 2^(b-1)) congruent to `word`.
    #[must_use]
    pub fn centre(self, word: u32) -> i64 {
        // An arithmetic shift copies the sign, so no branch depends on a word, which may be secret.
        let unused = u32::BITS - u32::from(self.0);
        i64::from((word << unused).cast_signed() >> unused)
    }

    /// `value` mod 2^b; inverse of [`centre`](Self::centre) on its range.
    #[must_use]
    pub fn wrap(self, value: i64) -> u32 {
        let bytes = value.to_le_bytes();
        self.reduce(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }
}

/// `sum[i] += words[i]` modulo 2^32.
///
/// # Panics
/// If the lengths differ.
pub fn add_assign(sum: &mut [u32], words: &[u32]) {
    assert_eq!(sum.len(), words.len(), "vectors that are added have the same length");
    for (sum, word) in sum.iter_mut().zip(words) {
        *sum = sum.wrapping_add(*word);
    }
}

/// Reduces every word modulo 2^b.
pub fn reduce(words: &mut [u32], modulus: Modulus) {
    let kept = modulus.max_word();
    for word in words {
        *word &= kept;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_16_to_32_bits_are_accepted() {
        for bits in 0..=u8::MAX {
            assert_eq!(Modulus::new(bits).is_ok(), (16..=32).contains(&bits), "b = {bits}");
        }
    }

    #[test]
    fn centre_and_wrap_are_inverse_at_both_ends_of_every_modulus() {
        for bits in 16..=32 {
            let modulus = Modulus::new(bits).unwrap();
            let half = 1i64 << (bits - 1);
            for value in [-half, -half + 1, -1, 0, 1, half - 1] {
                let word = modulus.wrap(value);
                assert!(word <= modulus.max_word());
                assert_eq!(modulus.centre(word), value, "b = {bits}");
            }
            assert_eq!(modulus.centre(modulus.wrap(half)), -half, "one past the top wraps to the bottom");
        }
    }

    #[test]
    fn reducing_at_the_end_equals_reducing_at_every_step() {
        let modulus = Modulus::new(20).unwrap();
        let terms = [0xffff_fff0u32, 0x8000_0001, 0x000f_ffff, 0xdead_beef];
        let late = terms.iter().fold(0u32, |sum, term| sum.wrapping_add(*term));
        let early = terms.iter().fold(0u32, |sum, term| modulus.reduce(sum.wrapping_add(modulus.reduce(*term))));
        assert_eq!(modulus.reduce(late), early);
    }

    #[test]
    fn addition_wraps_before_it_is_reduced() {
        let mut sum = vec![5, u32::MAX, 0];
        add_assign(&mut sum, &[u32::MAX, 2, 7]);
        assert_eq!(sum, [4, 1, 7]);
        add_assign(&mut sum, &[0x1_0000, u32::MAX, 0]);
        reduce(&mut sum, Modulus::new(16).unwrap());
        assert_eq!(sum, [4, 0, 7]);
    }

    #[test]
    #[should_panic(expected = "same length")]
    fn adding_vectors_of_different_lengths_panics() {
        add_assign(&mut [0, 0], &[1]);
    }
}
