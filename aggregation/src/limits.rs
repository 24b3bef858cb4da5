//! What may be asked of a device.

/// Longest vector, in words: a sum of 4 GiB.
pub(crate) const MAX_WORDS: usize = 1 << 30;
/// Slices of a vector that are unmasked on their own start at multiples of so many words.
pub(crate) const SLICE_START: u64 = 1 << 16;
/// Most vectors that robust statistics take: their Gram matrix takes 128 MiB.
pub(crate) const MAX_VECTORS: usize = 4096;
