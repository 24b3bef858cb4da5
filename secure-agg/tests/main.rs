//! All tests of the public interface in one executable. `constant_time.rs` and `vectors.rs` test private items: they are modules of the
//! unit tests.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

mod attacks;
mod codec;
mod cohort;
mod mask_vectors;
mod secrecy;
mod support;
