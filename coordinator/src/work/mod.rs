//! Background work: advances rounds independently of requests.
//!
//! Requests store facts; the [`Engine`] reads the facts and takes the next step of each task: open a round, draw a cohort, close a phase,
//! fold inputs into a sum, release the sum, publish a model version. A step gets only a task and a lease. It reads the stored state, does
//! its work and writes once, in one transaction that also confirms the lease, so a worker's death at any line costs a repeated step, never
//! a round. The result depends only on the stored state (and, for an unseeded draw, on chance), so a repeated step gives the same bytes.
//!
//! This module is independent of HTTP, and requests never call it: both communicate through stored facts, and a wake-up is only a hint to
//! survey before the next poll.

mod census;
mod close_phase;
mod collect_garbage;
mod engine;
mod gate;
mod grant;
mod keep_best;
mod keep_ledger;
mod number_events;
mod open_round;
mod publish_version;
mod releases;
mod selection;
mod shred;
mod summing;
mod traced;

pub use crate::step_error::StepError;
pub use engine::driver::Engine;
pub use engine::environment::{Environment, FailPoint, NoFailPoint, WorkConfig};
