//! Background work: advances rounds independently of requests.
//!
//! Requests store facts; the [`Engine`] looks at the facts and takes the next step of each task: open a round, draw a
//! cohort, close a phase, fold inputs into a sum, release the sum, publish a model version. A step is given a task and a
//! lease and nothing else. It reads what is stored, does its work and writes once, in one transaction that also confirms
//! the lease, so a worker that dies at any line costs a repeated step, never a round. What is written depends on what was
//! stored alone (and, for an unseeded draw, on chance), so a step that is done twice gives the same bytes.
//!
//! Nothing here knows HTTP, and no request calls in here: the two meet in stored facts, and a wake-up is only a hint to
//! look earlier than the next poll would.

mod census;
mod close_phase;
mod collect_garbage;
mod draw;
mod driver;
mod environment;
mod gate;
mod grant;
mod keep_ledger;
mod lease;
mod noise;
mod number_events;
mod open_round;
mod plan;
mod publish_version;
mod release;
mod release_groups;
mod release_sum;
mod robust;
mod sample;
mod select;
mod shred;
mod situation;
#[cfg(feature = "deliberate-faults")]
mod spoil;
mod streams;
mod sum_chunk;
mod sums;
mod traced;
mod waiting;
mod workers;

pub use crate::step_error::StepError;
pub use driver::Engine;
pub use environment::{Environment, FailPoint, NoFailPoint, WorkConfig};
