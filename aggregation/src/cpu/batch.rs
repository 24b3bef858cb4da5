//! The number of words that pass through all masks at a time.

/// Number of words that pass through all masks together: 32 KiB, which stays in a first-level cache. It divides 2^24,
/// so no batch straddles two nonces.
pub(super) const BATCH: usize = 1 << 13;
