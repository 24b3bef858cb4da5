//! Selection of the instruction set at run time.

use std::fmt;

use secure_agg::mask::{self, MaskPlan};
use secure_agg::modular::Modulus;

use super::batch::BATCH;
#[cfg(target_arch = "aarch64")]
use super::neon;
#[cfg(target_arch = "x86_64")]
use super::{avx2, avx512, gram_avx2, gram_avx512, unpack_avx2};
use super::{gram, select, unpack};

/// Implementations of the inner loops. All give the same bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kernel {
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// 128-bit vectors of ARM for masks; the compiler vectorizes the other loops there.
    #[cfg(target_arch = "aarch64")]
    Neon,
    /// No processor-specific code of this crate; the underlying `chacha20` crate has its own.
    Portable,
}

impl Kernel {
    #[cfg(target_arch = "x86_64")]
    const ALL: [Self; 3] = [Self::Avx512, Self::Avx2, Self::Portable];
    #[cfg(target_arch = "aarch64")]
    const ALL: [Self; 2] = [Self::Neon, Self::Portable];
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    const ALL: [Self; 1] = [Self::Portable];

    /// The kernels this processor can run, the fastest first.
    pub fn available() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|kernel| kernel.is_available())
    }

    /// The fastest kernel this processor can run.
    #[must_use]
    pub fn fastest() -> Self {
        Self::available().next().unwrap_or(Self::Portable)
    }

    /// Whether this processor has the instructions.
    #[must_use]
    pub fn is_available(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => avx512::is_available(),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => avx2::is_available(),
            #[cfg(target_arch = "aarch64")]
            Self::Neon => neon::is_available(),
            Self::Portable => true,
        }
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => "avx512",
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => "avx2",
            #[cfg(target_arch = "aarch64")]
            Self::Neon => "neon",
            Self::Portable => "portable",
        })
    }
}

/// A kernel with instructions known to be present on this processor: the proof that they may be executed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Present(Kernel);

impl Present {
    /// `None` if this processor lacks the instructions.
    pub(super) fn check(kernel: Kernel) -> Option<Self> {
        kernel.is_available().then_some(Self(kernel))
    }

    /// Applies all masks of `plan` to at most [`BATCH`] words at `offset` of its vector, a multiple of `BATCH`, and reduces them.
    ///
    /// # Panics
    /// If they lie outside.
    pub(super) fn apply_masks(self, plan: &MaskPlan, offset: u64, words: &mut [u32]) {
        assert!(words.len() <= BATCH && offset.is_multiple_of(BATCH as u64), "one batch at a time");
        #[cfg_attr(
            any(target_arch = "x86_64", target_arch = "aarch64"),
            expect(unsafe_code, reason = "the instructions are found at run time")
        )]
        match self.0 {
            // SAFETY: `check` found the instructions on this processor.
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx512 => unsafe { avx512::apply_masks(plan, offset, words) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx2 => unsafe { avx2::apply_masks(plan, offset, words) },
            // SAFETY: as above.
            #[cfg(target_arch = "aarch64")]
            Kernel::Neon => unsafe { neon::apply_masks(plan, offset, words) },
            Kernel::Portable => mask::apply(plan, offset, words).expect("the plan was compared with the shape"),
        }
    }

    /// Adds a packed vector of exactly `sum.len()` words, which the caller has checked.
    pub(super) fn add_packed(self, sum: &mut [u32], packed: &[u8], modulus: Modulus) {
        #[cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "the instructions are found at run time"))]
        match self.0 {
            // SAFETY: `check` found the instructions on this processor; `Avx512` includes AVX2.
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx512 | Kernel::Avx2 => unsafe { unpack_avx2::add(sum, packed, modulus) },
            #[cfg(target_arch = "aarch64")]
            Kernel::Neon => unpack::add(sum, packed, modulus),
            Kernel::Portable => unpack::add(sum, packed, modulus),
        }
    }

    /// Adds as many words as `sum` has.
    pub(super) fn add_words(self, sum: &mut [u32], words: &[u32]) {
        #[cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "the instructions are found at run time"))]
        match self.0 {
            // SAFETY: `check` found the instructions on this processor.
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx512 => unsafe { avx512::add_words(sum, words) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx2 => unsafe { avx2::add_words(sum, words) },
            #[cfg(target_arch = "aarch64")]
            Kernel::Neon => unpack::add_words(sum, words),
            Kernel::Portable => unpack::add_words(sum, words),
        }
    }
}

/// Robust statistics: the portable loops, compiled for the available instructions.
impl Present {
    pub(super) fn median(self, tiles: &[select::Row], vectors: usize, out: &mut [i32]) {
        #[cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "the instructions are found at run time"))]
        match self.0 {
            // SAFETY: `check` found the instructions on this processor.
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx512 => unsafe { avx512::median(tiles, vectors, out) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx2 => unsafe { avx2::median(tiles, vectors, out) },
            #[cfg(target_arch = "aarch64")]
            Kernel::Neon => select::median(tiles, vectors, out),
            Kernel::Portable => select::median(tiles, vectors, out),
        }
    }

    pub(super) fn trimmed_sum(self, tiles: &[select::Row], vectors: usize, trim: usize, out: &mut [i32]) {
        #[cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "the instructions are found at run time"))]
        match self.0 {
            // SAFETY: `check` found the instructions on this processor.
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx512 => unsafe { avx512::trimmed_sum(tiles, vectors, trim, out) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx2 => unsafe { avx2::trimmed_sum(tiles, vectors, trim, out) },
            #[cfg(target_arch = "aarch64")]
            Kernel::Neon => select::trimmed_sum(tiles, vectors, trim, out),
            Kernel::Portable => select::trimmed_sum(tiles, vectors, trim, out),
        }
    }

    pub(super) fn products(self, left: &[gram::Row], right: &[gram::Row]) -> gram::Products {
        #[cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "the instructions are found at run time"))]
        match self.0 {
            // SAFETY: `check` found AVX-512 on this processor, the guard the other required features.
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx512 if gram_avx512::is_available() => unsafe { gram_avx512::products(left, right) },
            // SAFETY: `check` found the instructions on this processor; `Avx512` includes AVX2.
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx512 | Kernel::Avx2 => unsafe { gram_avx2::products(left, right) },
            #[cfg(target_arch = "aarch64")]
            Kernel::Neon => gram::products(left, right),
            Kernel::Portable => gram::products(left, right),
        }
    }
}

#[cfg(test)]
mod tests {
    use secure_agg::mask::{MaskSeed, Plane, Sign, WORDS_PER_NONCE};

    use super::*;

    /// Also run by Miri, with whichever instructions it is configured to offer; one case, since it is slow.
    #[test]
    fn all_kernels_expand_the_words_of_the_definition() {
        let mut plan = MaskPlan::new(Plane::Scalars, 4 * WORDS_PER_NONCE, Modulus::WORD).unwrap();
        for number in 0..3u8 {
            plan.push(MaskSeed::new(&mut [number; 32]), if number == 1 { Sign::Subtract } else { Sign::Add });
        }
        let offsets = [3 * WORDS_PER_NONCE, 0, BATCH as u64, WORDS_PER_NONCE - BATCH as u64];
        let lengths = [129, 1, 16, 127, 256, 300];
        let (offsets, lengths) = if cfg!(miri) { (&offsets[..1], &lengths[..1]) } else { (&offsets[..], &lengths[..]) };
        for offset in offsets.iter().copied() {
            for len in lengths.iter().copied() {
                let before: Vec<u32> = (0..len).map(|i| u32::MAX - i).collect();
                let mut expected = before.clone();
                mask::apply(&plan, offset, &mut expected).unwrap();
                for kernel in Kernel::available() {
                    let mut words = before.clone();
                    Present::check(kernel).unwrap().apply_masks(&plan, offset, &mut words);
                    assert_eq!(words, expected, "{kernel}, {len} words at {offset}");
                }
            }
        }
    }

    /// Also for Miri: the instructions of robust statistics, on one panel and two tiles.
    #[test]
    fn all_kernels_find_the_order_and_the_products_that_plain_loops_find() {
        let word = |i: usize| i16::try_from(i * 7919 % 65_536).map_or_else(|_| i16::MIN, |word| word - 77);
        let tiles: Vec<select::Row> = (0..10).map(|row| std::array::from_fn(|lane| word(97 * row + lane))).collect();
        let mut expected = [[0; 70]; 2];
        select::median(&tiles, 5, &mut expected[0]);
        select::trimmed_sum(&tiles, 5, 1, &mut expected[1]);
        let row = |number: usize, shift: u32| std::array::from_fn(|at| word(1000 * number + at) >> shift);
        let (left, right): (Vec<gram::Row>, Vec<gram::Row>) = (0..4).map(|i| (row(i, 8), row(i + 4, 0))).unzip();
        let products = gram::products(&left, &right);
        for kernel in Kernel::available() {
            let present = Present::check(kernel).unwrap();
            let mut found = [[0; 70]; 2];
            present.median(&tiles, 5, &mut found[0]);
            present.trimmed_sum(&tiles, 5, 1, &mut found[1]);
            assert_eq!(found, expected, "{kernel}");
            assert_eq!(present.products(&left, &right), products, "{kernel}");
        }
    }
}
