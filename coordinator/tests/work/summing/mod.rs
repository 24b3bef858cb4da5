//! Partial sums.

mod sum_chunk;
