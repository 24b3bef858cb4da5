//! Drivers that perform a machine's actions: the participant of an app, and one that its caller drives.

pub(super) mod builder;
pub(super) mod driven;
pub(super) mod driver;
pub(super) mod prefetch;
mod prefetches;
mod spans;
pub mod tick;
mod wanted;
pub(super) mod withdrawal;
