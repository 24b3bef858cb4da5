//! All tests of the crate in one executable.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

mod fed_avg;
mod optimizers;
mod privacy_ledger;
mod privacy_opendp;
mod privacy_oracle;
mod privacy_participations;
mod privacy_plan;
mod privacy_samplers;
mod privacy_sum;
mod quantize;
mod robust_mnist;
