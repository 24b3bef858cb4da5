//! Adds a packed vector directly to a sum.
//!
//! Eight words of b bits are b bytes. With b a constant, the byte and the shift of each of the eight are constants too,
//! and the compiler generates straight-line (if possible, vector) code for a group.

use secure_agg::modular::Modulus;
use secure_agg::packing::{self, Unpacker};

/// Number of words in a group; a group takes as many bytes as a word has bits.
const GROUP: usize = 8;
/// Number of bytes read beyond a group's own, because its last word is loaded as 8 bytes.
const OVERREAD: usize = 8;

/// `sum[i] += word i of packed`, where `packed` holds exactly `sum.len()` words.
///
/// # Panics
/// If it does not.
#[inline(always)]
pub(super) fn add(sum: &mut [u32], packed: &[u8], modulus: Modulus) {
    match modulus.bits() {
        16 => add_groups::<16>(sum, packed, modulus),
        17 => add_groups::<17>(sum, packed, modulus),
        18 => add_groups::<18>(sum, packed, modulus),
        19 => add_groups::<19>(sum, packed, modulus),
        20 => add_groups::<20>(sum, packed, modulus),
        21 => add_groups::<21>(sum, packed, modulus),
        22 => add_groups::<22>(sum, packed, modulus),
        23 => add_groups::<23>(sum, packed, modulus),
        24 => add_groups::<24>(sum, packed, modulus),
        25 => add_groups::<25>(sum, packed, modulus),
        26 => add_groups::<26>(sum, packed, modulus),
        27 => add_groups::<27>(sum, packed, modulus),
        28 => add_groups::<28>(sum, packed, modulus),
        29 => add_groups::<29>(sum, packed, modulus),
        30 => add_groups::<30>(sum, packed, modulus),
        31 => add_groups::<31>(sum, packed, modulus),
        _ => add_plain(sum, packed),
    }
}

/// `sum[i] += words[i]`, for slices of equal length.
#[inline(always)]
pub(super) fn add_words(sum: &mut [u32], words: &[u32]) {
    assert_eq!(sum.len(), words.len(), "the caller checks the length");
    for (sum, word) in sum.iter_mut().zip(words) {
        *sum = sum.wrapping_add(*word);
    }
}

#[inline(always)]
fn add_plain(sum: &mut [u32], packed: &[u8]) {
    let (words, rest) = packed.as_chunks::<4>();
    assert!(rest.is_empty() && words.len() == sum.len(), "the caller checks the length of the packed vector");
    for (sum, word) in sum.iter_mut().zip(words) {
        *sum = sum.wrapping_add(u32::from_le_bytes(*word));
    }
}

#[inline(always)]
fn add_groups<const BITS: usize>(sum: &mut [u32], packed: &[u8], modulus: Modulus) {
    assert_eq!(packed.len(), packing::packed_len(sum.len(), modulus), "the caller checks the length");
    let whole = packed.len().saturating_sub(OVERREAD) / BITS;
    let (groups, rest) = sum.split_at_mut(whole * GROUP);
    let (groups, _) = groups.as_chunks_mut::<GROUP>();
    for (index, group) in groups.iter_mut().enumerate() {
        let bytes = &packed[index * BITS..index * BITS + BITS + OVERREAD];
        for (lane, sum) in group.iter_mut().enumerate() {
            *sum = sum.wrapping_add(word_at::<BITS>(bytes, lane));
        }
    }
    add_rest(rest, &packed[whole * BITS..], modulus);
}

/// Word `lane` of the group at the start of `bytes`.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the value is masked to at most 31 bits")]
fn word_at<const BITS: usize>(bytes: &[u8], lane: usize) -> u32 {
    let byte = lane * BITS / 8;
    let mut eight = [0; 8];
    eight.copy_from_slice(&bytes[byte..byte + 8]);
    ((u64::from_le_bytes(eight) >> (lane * BITS % 8)) & ((1 << BITS) - 1)) as u32
}

/// Adds the last words, for which full loads would pass the end.
#[inline(never)]
pub(super) fn add_rest(sum: &mut [u32], packed: &[u8], modulus: Modulus) {
    let mut unpacker = Unpacker::new(sum.len(), modulus);
    let mut rest = sum.iter_mut();
    let unpacked = unpacker.push(packed, |word| {
        if let Some(sum) = rest.next() {
            *sum = sum.wrapping_add(word);
        }
    });
    assert!(unpacked.is_ok() && rest.next().is_none(), "the caller checks the packed vector");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_width_and_every_tail_adds_what_unpacking_gives() {
        // Miri is slow: a few widths, odd and even, and lengths with and without a tail suffice for it.
        let (widths, lengths) = if cfg!(miri) { (5, 19) } else { (1, 1) };
        for bits in (16..=32).step_by(widths) {
            let modulus = Modulus::new(bits).unwrap();
            for len in (0..70u32).step_by(lengths) {
                let words: Vec<u32> = (0..len).map(|i| i.wrapping_mul(0x9e37_79b9) ^ 0xffff_0000).collect();
                let packed = packing::pack(&words, modulus);
                let mut sum: Vec<u32> = (0..len).map(|i| u32::MAX - i).collect();
                let expected: Vec<u32> =
                    sum.iter().zip(&words).map(|(sum, word)| sum.wrapping_add(modulus.reduce(*word))).collect();
                add(&mut sum, &packed, modulus);
                assert_eq!(sum, expected, "b = {bits}, {len} words");
            }
        }
    }
}
