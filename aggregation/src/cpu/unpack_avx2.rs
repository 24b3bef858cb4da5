//! Adds a packed vector with 256-bit vectors, eight words at a time, which take as many bytes as a word has bits.
//!
//! Each half of a vector takes four words from sixteen bytes. A word spans at most five bytes, so it is assembled from
//! two shuffles of four bytes each, shifted right and left by its bit offset in the first byte.

use std::arch::x86_64::*;

use secure_agg::modular::Modulus;

use super::unpack;

/// Words of a group.
const GROUP: usize = 8;
/// Bytes of one load.
const LOAD: usize = 16;
/// Shuffle index for a zero byte.
const ZERO: u8 = 0x80;

/// See [`unpack::add`].
///
/// # Panics
/// Unless `packed` holds exactly `sum.len()` words.
#[target_feature(enable = "avx2")]
pub(super) fn add(sum: &mut [u32], packed: &[u8], modulus: Modulus) {
    if modulus == Modulus::WORD {
        return unpack::add(sum, packed, modulus);
    }
    let bits = usize::from(modulus.bits());
    let middle = bits / 2;
    // Number of groups with a second load entirely inside.
    let whole = (packed.len() + bits).saturating_sub(middle + LOAD) / bits;
    let whole = whole.min(sum.len() / GROUP);
    let (groups, rest) = sum.split_at_mut(whole * GROUP);
    let (groups, _) = groups.as_chunks_mut::<GROUP>();
    let layout = Layout::new(bits);
    let (first, second) = (vector_of_bytes(&layout.first), vector_of_bytes(&layout.second));
    let (right, left) = (load(&layout.right), load(&layout.left));
    let kept = _mm256_set1_epi32(modulus.max_word().cast_signed());
    for (index, group) in groups.iter_mut().enumerate() {
        let bytes = &packed[index * bits..index * bits + middle + LOAD];
        let bytes = _mm256_set_m128i(half(&bytes[middle..]), half(bytes));
        let low = _mm256_srlv_epi32(_mm256_shuffle_epi8(bytes, first), right);
        let high = _mm256_sllv_epi32(_mm256_shuffle_epi8(bytes, second), left);
        let words = _mm256_and_si256(_mm256_or_si256(low, high), kept);
        store(group, _mm256_add_epi32(load(group), words));
    }
    unpack::add_rest(rest, &packed[whole * bits..], modulus);
}

/// Positions of a group's eight words in its two loads.
struct Layout {
    /// For each byte of each word, the source of its low part.
    first: [u8; 32],
    /// The four bytes after those.
    second: [u8; 32],
    /// Right shift of the low part.
    right: [u32; GROUP],
    /// Left shift of the high part; a shift by 32 gives zero.
    left: [u32; GROUP],
}

impl Layout {
    fn new(bits: usize) -> Self {
        let mut layout = Self { first: [ZERO; 32], second: [ZERO; 32], right: [0; GROUP], left: [0; GROUP] };
        for word in 0..GROUP {
            let load_starts = 8 * (bits / 2) * (word / 4);
            let bit = word * bits - load_starts;
            let byte_in_load = |byte: usize| if byte < LOAD { byte.to_le_bytes()[0] } else { ZERO };
            for k in 0..4 {
                layout.first[4 * word + k] = byte_in_load(bit / 8 + k);
                layout.second[4 * word + k] = byte_in_load(bit / 8 + 4 + k);
            }
            layout.right[word] = u32::from((bit % 8).to_le_bytes()[0]);
            layout.left[word] = 32 - layout.right[word];
        }
        layout
    }
}

/// The first sixteen bytes.
#[target_feature(enable = "avx2")]
fn half(bytes: &[u8]) -> __m128i {
    let bytes: &[u8] = &bytes[..LOAD];
    #[expect(unsafe_code, reason = "the load takes a raw pointer")]
    // SAFETY: `bytes` is 16 readable bytes, and the load requires no alignment.
    unsafe {
        _mm_loadu_si128(bytes.as_ptr().cast())
    }
}

#[target_feature(enable = "avx2")]
fn vector_of_bytes(bytes: &[u8; 32]) -> __m256i {
    #[expect(unsafe_code, reason = "the load takes a raw pointer")]
    // SAFETY: `bytes` is 32 readable bytes, and the load requires no alignment.
    unsafe {
        _mm256_loadu_si256(bytes.as_ptr().cast())
    }
}

#[target_feature(enable = "avx2")]
fn load(words: &[u32; GROUP]) -> __m256i {
    #[expect(unsafe_code, reason = "the load takes a raw pointer")]
    // SAFETY: `words` is 32 readable bytes, and the load requires no alignment.
    unsafe {
        _mm256_loadu_si256(words.as_ptr().cast())
    }
}

#[target_feature(enable = "avx2")]
fn store(words: &mut [u32; GROUP], vector: __m256i) {
    #[expect(unsafe_code, reason = "the store takes a raw pointer")]
    // SAFETY: `words` is 32 exclusively borrowed, writable bytes, and the store requires no alignment.
    unsafe {
        _mm256_storeu_si256(words.as_mut_ptr().cast(), vector);
    }
}

#[cfg(test)]
mod tests {
    use secure_agg::packing;

    use super::*;

    #[test]
    fn every_width_and_every_tail_adds_what_the_portable_loop_adds() {
        if !is_x86_feature_detected!("avx2") {
            println!("skipped: this processor has no AVX2");
            return;
        }
        // Miri is slow: a few widths, odd and even, and lengths with and without a tail suffice for it.
        let (widths, lengths) = if cfg!(miri) { (5, 19) } else { (1, 1) };
        for bits in (16..=32).step_by(widths) {
            let modulus = Modulus::new(bits).unwrap();
            for len in (0..100u32).step_by(lengths) {
                let words: Vec<u32> = (0..len).map(|i| i.wrapping_mul(0x9e37_79b9) ^ 0xffff_0000).collect();
                let packed = packing::pack(&words, modulus);
                let mut expected: Vec<u32> = (0..len).map(|i| u32::MAX - i).collect();
                let mut sum = expected.clone();
                unpack::add(&mut expected, &packed, modulus);
                #[expect(unsafe_code, reason = "the instructions are found at run time")]
                // SAFETY: AVX2 was found above.
                unsafe {
                    add(&mut sum, &packed, modulus);
                }
                assert_eq!(sum, expected, "b = {bits}, {len} words");
            }
        }
    }
}
