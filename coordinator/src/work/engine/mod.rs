//! The engine: the next step, the lease to take it, and its environment.

pub(super) mod driver;
pub(super) mod environment;
pub(super) mod lease;
pub(super) mod plan;
pub(super) mod situation;
mod workers;
