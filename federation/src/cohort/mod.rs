//! Who may join a round and who is drawn.
//!
//! [`Requirements`](task_spec::Requirements) says who is eligible, [`Cohort`](task_spec::Cohort) how many are wanted, a [`Selector`] which ones. A selector sees
//! candidates in the order of their names, what earlier rounds left ([`History`]) and a random generator, so the same
//! participants, past and seed draw the same cohort, whatever ids they were given. It keeps no state of its own: a draw that
//! a crash interrupts is made again.
//!
//! Whether a device may work at all (power, network, idleness) is not asked here: it answers that itself and simply does
//! not check in. What a task wants of devices ([`Criterion`](task_spec::Criterion)) they decide themselves. The coordinator learns yes or no and never
//! why.

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

/// Whoever chooses by a task's strategy.
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
