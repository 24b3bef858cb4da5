//! All tests of the crate in one executable, except `planted.rs`: its faults are global to their process.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

mod command;
mod regressions;
mod survives;
