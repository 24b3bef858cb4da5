//! All tests of the crate in one executable.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

mod audit;
mod smoke;
