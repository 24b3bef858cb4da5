//! Rounds, cohorts and model versions, and the rules by which a round advances.
//!
//! This crate is the heart of the system and knows nothing of its body: no sockets, no rows, no bytes of messages, no
//! values of parameters. Time and randomness come in as arguments, so every rule can be tested without waiting.
//!
//! It is an API boundary: `store` keeps these types, `wire` shows them, `coordinator` asks [`advance::advance`] what to do.

pub mod advance;
pub mod cohort;
pub mod gate;
pub mod groups;
pub mod id;
mod limits;
pub mod line;
pub mod model_version;
pub mod quantile;
pub mod round;
pub mod task_status;
pub mod time;
pub mod training;
