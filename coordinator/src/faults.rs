//! Deliberate faults, which audits must detect. Only with the feature `deliberate-faults`, which only tests enable.
//!
//! One fault per process: an audit breaks a build, not a single task.

use crate::guarded::Guarded;

static PRESENT: Guarded<Option<Fault>> = Guarded::new(None);

/// A coordinator's deliberate fault: of its promise in private tasks, or of what its rounds survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    NoClipping,
    /// Adds no central noise.
    NoNoise,
    /// Adds central noise of half the standard deviation.
    HalfNoise,
    /// Adds the same central noise in every round.
    ReusedNoise,
    /// Counts the noise of all participants drawn instead of those in the sum.
    DropoutsCounted,
    /// Forgets which inputs the partial sum holds.
    DoubleCount,
    /// Tells nobody that facts were written.
    LostWake,
    /// Destroys keys before it holds the lease of the round they are of.
    UnfencedWrite,
    /// Goes on under a lease that another has taken since.
    LostLease,
    /// Takes its own clock's word that nobody can have taken its lease.
    OwnClock,
    /// Takes a lease again that it lost, and publishes under the next free number what it made before.
    PublishTwice,
    /// Takes an input that comes again for one that no sum holds.
    ReplayedInput,
}

/// From now on, all coordinators of this process have this fault, or none.
pub fn set(fault: Option<Fault>) {
    *PRESENT.lock() = fault;
}

pub(crate) fn present() -> Option<Fault> {
    *PRESENT.lock()
}
