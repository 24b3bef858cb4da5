//! All tests of the crate in one executable.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

mod cohort;
mod round_life;
mod round_limits;
mod training;
