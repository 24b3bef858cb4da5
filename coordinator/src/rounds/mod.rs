//! Rounds: base versions, stored inputs, secure aggregation sessions, and selection.

pub(crate) mod ahead;
pub mod base;
pub(crate) mod inputs;
pub(crate) mod models;
pub(crate) mod proximal;
pub(crate) mod reported_rounds;
pub(crate) mod selection;
pub(crate) mod session;
pub(crate) mod sessions;
pub(crate) mod waiting;
