//! How much of a vector goes through all masks at a time.

/// Words that go through all masks together: 32 KiB stay in a first-level cache. It divides 2^24, so that none of the
/// pieces into which a vector is cut by it straddles two nonces.
pub(super) const BATCH: usize = 1 << 13;
