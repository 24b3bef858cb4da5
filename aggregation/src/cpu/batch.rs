//! The number of words per pass through all masks.

/// Number of words per pass through all masks: 32 KiB, which fits a first-level cache. It divides 2^24, so a batch never straddles two
/// nonces.
pub(super) const BATCH: usize = 1 << 13;
