//! Rounds, cohorts and model versions, and the rules by which a round advances.
//!
//! This crate contains rules only. Sockets, rows, message bytes and parameter values are elsewhere. Time and randomness are arguments, so
//! every rule can be tested without waiting.
//!
//! It is an API boundary: `store` stores these types, `wire` shows them, and `coordinator` calls [`advance::advance`] for each decision.

pub mod advance;
pub mod batches;
pub mod cohort;
pub mod device_reason;
pub mod event;
pub mod gate;
pub mod groups;
pub mod id;
mod limits;
pub mod model_version;
pub mod quantile;
pub mod round;
pub mod round_trip;
pub mod task_status;
pub mod time;
pub mod training;
