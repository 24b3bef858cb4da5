//! All tests of the coordinator in one executable: each executable links the whole crate again.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

mod connections;
mod faults;
mod listener;
mod private;
mod routes;
mod secure;
mod support;
mod tls;
mod work;
#[path = "support/world.rs"]
mod world;
