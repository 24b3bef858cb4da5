//! Deliberate faults that audits must detect. Only with the feature `deliberate-faults`, enabled only by tests.
//!
//! One fault per process: an audit breaks a build, not a single task.

use listener::PoisonFreeMutex;

static PRESENT: PoisonFreeMutex<Option<Fault>> = PoisonFreeMutex::new(None);

/// A coordinator's deliberate fault: in the privacy of tasks, or in the resilience of rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    NoClipping,
    /// Adds no central noise.
    NoNoise,
    /// Adds central noise of half the standard deviation.
    HalfNoise,
    /// Adds the same central noise in every round.
    ReusedNoise,
    /// Charges the noise of all drawn participants instead of those in the sum.
    DropoutsCounted,
    /// Forgets the inputs in the partial sum.
    DoubleCount,
    /// Destroys keys before it holds the lease of their round.
    UnfencedWrite,
    /// Continues under a lease taken by another worker.
    LostLease,
    /// Relies on its own clock for the validity of its lease.
    OwnClock,
    /// Takes a lost lease again, and publishes its earlier result under the next free number.
    PublishTwice,
    /// Treats a repeated input as new to the sum.
    ReplayedInput,
}

/// Sets or clears the fault of all coordinators of this process.
pub fn set(fault: Option<Fault>) {
    *PRESENT.lock() = fault;
}

pub(crate) fn present() -> Option<Fault> {
    *PRESENT.lock()
}
