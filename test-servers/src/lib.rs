//! Real servers that tests start and stop: never in a shipped build.

#![expect(clippy::unwrap_used, reason = "a server of tests says what is broken by panicking")]

pub mod s3;
