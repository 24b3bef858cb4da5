//! Eligibility and selection of participants.
//!
//! [`Requirements`](task_spec::Requirements) defines eligibility, [`Cohort`](task_spec::Cohort) the cohort's size, and a [`Selector`]
//! chooses its members. A selector sees candidates in the order of their names, since ids are random; the results of earlier rounds
//! ([`History`]); and a random generator. So the same participants, history and seed give the same cohort on any coordinator. It is
//! stateless: a draw interrupted by a crash is repeated.
//!
//! Whether a device may work at all (power, network, idleness) is the device's decision: it simply does not check in. Devices also evaluate
//! a task's criteria ([`Criterion`](task_spec::Criterion)) themselves; the coordinator learns yes or no without a reason.

mod candidate;
mod coarse_loss;
mod oort;
mod power_of_choice;
mod round_robin;
mod stratified;
mod uniform;
mod weighted;

use task_spec::Strategy;

pub use candidate::{Candidate, History, Ineligible, Selector};
pub use coarse_loss::{BadLevel, CoarseLoss};
pub use round_robin::RoundRobin;
pub use uniform::Uniform;

/// The selector of a strategy.
#[must_use]
pub fn selector(strategy: &Strategy) -> &dyn Selector {
    match strategy {
        Strategy::Uniform => &Uniform,
        Strategy::RoundRobin => &RoundRobin,
        Strategy::Stratified(selector) => selector,
        Strategy::PowerOfChoice(selector) => selector,
        Strategy::Oort(selector) => selector,
    }
}
