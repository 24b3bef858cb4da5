//! Rounds, cohorts and model versions, and the rules by which a round advances.
//!
//! This crate contains the rules only: no sockets, no rows, no message bytes, no parameter values. Time and randomness
//! are arguments, so every rule can be tested without waiting.
//!
//! It is an API boundary: `store` stores these types, `wire` shows them, and `coordinator` asks [`advance::advance`]
//! what to do.

pub mod advance;
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
