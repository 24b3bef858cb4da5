//! The wire form of a vector of words modulo 2^b: b bits per word, without gaps, least significant bit first.
//!
//! Bit `k` of word `i` is bit `(i·b + k) mod 8` of byte `(i·b + k) div 8`, so b = 32 is plain little-endian `u32`, and every eighth word
//! starts on a byte. The bits left over in the last byte are zero: each vector has exactly one encoding, so equal vectors have equal
//! digests. Lengths are compared before anything is allocated.

use thiserror::Error;

use crate::modular::Modulus;

/// Reasons bytes are not a packed vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum PackingError {
    /// There are too few or too many bytes.
    #[error("a packed vector of {expected} bytes was expected, {got} bytes were given")]
    Length {
        /// Length required by the shape, in bytes.
        expected: usize,
        /// Length in bytes; for a stream, the number received when it was rejected.
        got: usize,
    },
    /// The unused bits of the last byte are not all zero.
    #[error("the unused bits of the last byte must be zero")]
    Padding,
}

/// Packed length of `words` words of `modulus`, in bytes. Saturates at `usize::MAX`, which exceeds every input.
#[must_use]
pub const fn packed_len(words: usize, modulus: Modulus) -> usize {
    let bits = modulus.bits() as usize;
    let rest = ((words % 8) * bits).div_ceil(8);
    (words / 8).saturating_mul(bits).saturating_add(rest)
}

/// Packs the low b bits of every word.
#[must_use]
pub fn pack(words: &[u32], modulus: Modulus) -> Vec<u8> {
    let mut packed = Vec::new();
    pack_onto(&mut packed, words, modulus);
    packed
}

/// Packs the low b bits of every word after the bytes in `packed`, starting on a byte.
pub fn pack_onto(packed: &mut Vec<u8>, words: &[u32], modulus: Modulus) {
    packed.reserve_exact(packed_len(words.len(), modulus));
    if modulus.bits() == 32 {
        // Words are used without shifting.
        packed.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        return;
    }
    let mut pending = 0u64;
    let mut held = 0u32;
    for word in words {
        pending |= u64::from(modulus.reduce(*word)) << held;
        held += u32::from(modulus.bits());
        if held >= 32 {
            packed.extend_from_slice(&low_word(pending).to_le_bytes());
            pending >>= 32;
            held -= 32;
        }
    }
    packed.extend_from_slice(&pending.to_le_bytes()[..held.div_ceil(8) as usize]);
}

/// Unpacks exactly `words` words, each below 2^b.
///
/// # Errors
/// [`PackingError`] if `packed` is not exactly [`packed_len`] bytes, or its unused bits are not zero.
pub fn unpack(packed: &[u8], words: usize, modulus: Modulus) -> Result<Vec<u32>, PackingError> {
    check(packed, words, modulus)?;
    let mut unpacked = Vec::with_capacity(words);
    let mut unpacker = Unpacker::new(words, modulus);
    unpacker.push(packed, |word| unpacked.push(word))?;
    unpacker.finish()?;
    Ok(unpacked)
}

/// Whether `packed` has the length and the zero padding required for `words` words of `modulus`. Reads one byte.
///
/// # Errors
/// [`PackingError`] for the first of the two that fails.
pub fn check(packed: &[u8], words: usize, modulus: Modulus) -> Result<(), PackingError> {
    let expected = packed_len(words, modulus);
    if packed.len() != expected {
        return Err(PackingError::Length { expected, got: packed.len() });
    }
    check_padding(packed.last().copied(), words, modulus)
}

/// Whether the unused bits of the last byte of `words` packed words are zero; `last` is `None` for an empty vector.
///
/// # Errors
/// [`PackingError::Padding`] if they are not.
pub fn check_padding(last: Option<u8>, words: usize, modulus: Modulus) -> Result<(), PackingError> {
    let used = (words % 8) * usize::from(modulus.bits()) % 8;
    match last {
        Some(byte) if used != 0 && byte >> used != 0 => Err(PackingError::Padding),
        _ => Ok(()),
    }
}

/// Number of words passed on at once.
const SLICE: usize = 256;

/// Unpacks a vector from pieces of any size; buffers fewer than 32 bits between pieces.
#[derive(Debug)]
pub struct Unpacker {
    modulus: Modulus,
    expected: usize,
    taken: usize,
    pending: u64,
    held: u32,
}

impl Unpacker {
    /// Expects the packed form of exactly `words` words.
    #[must_use]
    pub const fn new(words: usize, modulus: Modulus) -> Self {
        Self { modulus, expected: packed_len(words, modulus), taken: 0, pending: 0, held: 0 }
    }

    /// Consumes the next bytes and passes every completed word to `sink`, in order.
    ///
    /// # Errors
    /// [`PackingError::Length`] if the vector has fewer bytes (`bytes` is then ignored), and [`PackingError::Padding`]
    /// if the last byte has unused bits set.
    pub fn push(&mut self, bytes: &[u8], mut sink: impl FnMut(u32)) -> Result<(), PackingError> {
        if bytes.len() > self.expected - self.taken {
            let got = self.taken.saturating_add(bytes.len());
            return Err(PackingError::Length { expected: self.expected, got });
        }
        let bits = u32::from(self.modulus.bits());
        let kept = u64::from(self.modulus.max_word());
        let (mut fours, rest) = bytes.as_chunks::<4>();
        if bits == 32 && self.held == 0 {
            // Words are used without shifting.
            fours.iter().for_each(|four| sink(u32::from_le_bytes(*four)));
            fours = &[];
        }
        for four in fours {
            self.pending |= u64::from(u32::from_le_bytes(*four)) << self.held;
            self.held += 32;
            while self.held >= bits {
                sink(low_word(self.pending & kept));
                self.pending >>= bits;
                self.held -= bits;
            }
        }
        for byte in rest {
            self.pending |= u64::from(*byte) << self.held;
            self.held += 8;
            if self.held >= bits {
                sink(low_word(self.pending & kept));
                self.pending >>= bits;
                self.held -= bits;
            }
        }
        self.taken += bytes.len();
        if self.taken == self.expected && self.pending != 0 { Err(PackingError::Padding) } else { Ok(()) }
    }

    /// As [`Self::push`], but passes the words in slices.
    ///
    /// # Errors
    /// As for [`Self::push`].
    pub fn push_slices(&mut self, bytes: &[u8], mut sink: impl FnMut(&[u32])) -> Result<(), PackingError> {
        let (mut words, mut held) = ([0; SLICE], 0);
        let mut bytes = bytes;
        if self.modulus.bits() == 32 && self.held == 0 && bytes.len() <= self.expected - self.taken {
            // Words are used without shifting, and all bits are consumed.
            let (fours, rest) = bytes.as_chunks::<4>();
            for fours in fours.chunks(SLICE) {
                words.iter_mut().zip(fours).for_each(|(word, four)| *word = u32::from_le_bytes(*four));
                sink(&words[..fours.len()]);
            }
            self.taken += fours.as_flattened().len();
            bytes = rest;
        }
        let pushed = self.push(bytes, |word| {
            words[held] = word;
            held += 1;
            if held == SLICE {
                sink(&words);
                held = 0;
            }
        });
        sink(&words[..held]);
        pushed
    }

    /// Completes the vector.
    ///
    /// # Errors
    /// [`PackingError::Length`] if bytes are missing.
    pub const fn finish(self) -> Result<(), PackingError> {
        if self.taken == self.expected {
            Ok(())
        } else {
            Err(PackingError::Length { expected: self.expected, got: self.taken })
        }
    }
}

/// The low 32 bits.
#[expect(clippy::cast_possible_truncation, reason = "dropping the high half is what this function is for")]
const fn low_word(bits: u64) -> u32 {
    bits as u32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn vectors() -> impl Strategy<Value = (Modulus, Vec<u32>)> {
        (16u8..=32, proptest::collection::vec(any::<u32>(), 0..70))
            .prop_map(|(bits, words)| (Modulus::new(bits).unwrap(), words))
    }

    #[test]
    fn thirty_two_bits_are_plain_little_endian() {
        let modulus = Modulus::new(32).unwrap();
        assert_eq!(pack(&[0x0403_0201, 0xfffe_fdfc], modulus), [1, 2, 3, 4, 0xfc, 0xfd, 0xfe, 0xff]);
    }

    #[test]
    fn twenty_bits_leave_no_gap() {
        let modulus = Modulus::new(20).unwrap();
        assert_eq!(pack(&[0xa_bcde, 0x1_2345, 0xf_0f0f], modulus), [0xde, 0xbc, 0x5a, 0x34, 0x12, 0x0f, 0x0f, 0x0f]);
        assert_eq!(packed_len(3, modulus), 8);
        assert_eq!(packed_len(usize::MAX, Modulus::new(32).unwrap()), usize::MAX, "saturates");
    }

    #[test]
    fn a_vector_begins_on_the_next_byte_behind_another() {
        let mut packed = Vec::new();
        pack_onto(&mut packed, &[0xa_bcde], Modulus::new(20).unwrap());
        pack_onto(&mut packed, &[0x1234], Modulus::new(16).unwrap());
        assert_eq!(packed, [0xde, 0xbc, 0x0a, 0x34, 0x12]);
    }

    #[test]
    fn a_set_padding_bit_is_refused() {
        let modulus = Modulus::new(20).unwrap();
        let mut packed = pack(&[1], modulus);
        packed[2] |= 0x80;
        assert_eq!(unpack(&packed, 1, modulus), Err(PackingError::Padding));
        let mut unpacker = Unpacker::new(1, modulus);
        assert_eq!(unpacker.push(&packed, |_| ()), Err(PackingError::Padding));
    }

    #[test]
    fn slices_hold_the_same_words_whatever_they_are_cut_from() {
        for bits in [20, 32] {
            let modulus = Modulus::new(bits).unwrap();
            let words: Vec<u32> = (0..3 * u32::try_from(SLICE).unwrap() + 7)
                .map(|word| modulus.reduce(word.wrapping_mul(7_654_321)))
                .collect();
            let packed = pack(&words, modulus);
            for piece in [1001, 1024, packed.len()] {
                let (mut unpacker, mut unpacked) = (Unpacker::new(words.len(), modulus), Vec::new());
                for piece in packed.chunks(piece) {
                    unpacker.push_slices(piece, |words| unpacked.extend_from_slice(words)).unwrap();
                }
                assert_eq!((&unpacked, unpacker.finish()), (&words, Ok(())));
            }
            let longer = [&packed[..], &[0; 4]].concat();
            let refused = Unpacker::new(words.len(), modulus).push_slices(&longer, |words| assert!(words.is_empty()));
            assert_eq!(refused, Err(PackingError::Length { expected: packed.len(), got: longer.len() }));
        }
    }

    proptest! {
        #[test]
        fn unpacking_inverts_packing((modulus, words) in vectors()) {
            let packed = pack(&words, modulus);
            prop_assert_eq!(packed.len(), packed_len(words.len(), modulus));
            let reduced: Vec<u32> = words.iter().map(|word| modulus.reduce(*word)).collect();
            prop_assert_eq!(unpack(&packed, words.len(), modulus), Ok(reduced));
        }

        #[test]
        fn pieces_of_any_size_give_the_same_words(
            (modulus, words) in vectors(),
            cuts in proptest::collection::vec(0usize..40, 0..40),
        ) {
            let packed = pack(&words, modulus);
            let mut unpacker = Unpacker::new(words.len(), modulus);
            let mut unpacked = Vec::new();
            let mut rest = packed.as_slice();
            for cut in cuts {
                let (piece, after) = rest.split_at(cut.min(rest.len()));
                unpacker.push(piece, |word| unpacked.push(word)).unwrap();
                rest = after;
            }
            unpacker.push(rest, |word| unpacked.push(word)).unwrap();
            prop_assert_eq!(unpacker.finish(), Ok(()));
            prop_assert_eq!(Ok(unpacked), unpack(&packed, words.len(), modulus));
        }

        #[test]
        fn any_other_length_is_refused((modulus, words) in vectors(), extra in 1usize..5) {
            let mut packed = pack(&words, modulus);
            let expected = packed.len();
            packed.extend(std::iter::repeat_n(0, extra));
            let error = PackingError::Length { expected, got: expected + extra };
            prop_assert_eq!(unpack(&packed, words.len(), modulus), Err(error));
            prop_assert_eq!(Unpacker::new(words.len(), modulus).push(&packed, |_| ()), Err(error));
            let short = expected.saturating_sub(extra);
            let mut unpacker = Unpacker::new(words.len(), modulus);
            unpacker.push(&packed[..short], |_| ()).unwrap();
            prop_assert_eq!(unpacker.finish().is_err(), short != expected);
        }

        #[test]
        fn what_unpacks_packs_to_the_same_bytes(bits in 16u8..=32, words in 0usize..9, noise in any::<[u8; 36]>()) {
            let modulus = Modulus::new(bits).unwrap();
            let packed = &noise[..packed_len(words, modulus)];
            match unpack(packed, words, modulus) {
                Ok(unpacked) => prop_assert_eq!(pack(&unpacked, modulus), packed),
                Err(error) => prop_assert_eq!(error, PackingError::Padding),
            }
        }
    }
}
