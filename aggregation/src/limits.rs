//! Limits of all devices.

/// Maximum length of a vector, in words: a sum of 4 GiB.
pub(crate) const MAX_WORDS: usize = 1 << 30;
/// Separately unmasked slices of a vector start at multiples of this many words.
pub(crate) const SLICE_START: u64 = 1 << 16;
/// Maximum number of vectors for robust statistics: their Gram matrix takes 128 MiB.
pub(crate) const MAX_VECTORS: usize = 4096;
