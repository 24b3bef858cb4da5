//! All tests of the crate in one executable.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

mod audit_log;
mod compat;
mod provenance;
mod session;
