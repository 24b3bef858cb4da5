//! Partial sums of inputs, and the streams that read and write them.

pub(super) mod streams;
pub(super) mod sum_chunk;
pub(super) mod sums;
