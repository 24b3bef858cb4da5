//! Words of a modulus and the signed integers they represent.

/// Maximum cohort of a codec.
pub const MAX_COHORT: u32 = 65_536;

/// Fewest levels on each side of zero at the smallest weight.
pub const MIN_LEVELS: u32 = 64;

/// Largest magnitude representable by a sum modulo 2^b.
pub(crate) fn half(modulus_bits: u8) -> u32 {
    u32::MAX >> (33 - u32::from(modulus_bits))
}

/// The representative of a residue in `-2^(b-1) .. 2^(b-1)`.
pub(crate) fn lift(word: u32, modulus_bits: u8) -> i64 {
    let word = i64::from(word);
    if word >> (modulus_bits - 1) == 0 { word } else { word - (1_i64 << modulus_bits) }
}

/// The residue modulo 2^b.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "reduction modulo 2^32 is meant")]
#[inline(always)]
pub(crate) fn to_word(value: i64, mask: u32) -> u32 {
    value as u32 & mask
}
