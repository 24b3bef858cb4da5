//! Deliberate faults, for audits that must catch them. Test-only: not there unless the feature `deliberate-faults` is on,
//! which nothing but tests turns on.
//!
//! One for the whole process: what an audit breaks is a build, not one task of it.

use crate::guarded::Guarded;

static PRESENT: Guarded<Option<Fault>> = Guarded::new(None);

/// What a coordinator does wrong in tasks with a privacy mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Takes updates however long they are.
    NoClipping,
    /// Adds no central noise.
    NoNoise,
    /// Adds central noise of half the standard deviation.
    HalfNoise,
    /// Adds the same central noise in every round.
    ReusedNoise,
    /// Counts on the noise of everybody who was drawn, not of those whose updates are in the sum.
    DropoutsCounted,
}

/// From now on, all coordinators of this process have this fault, or none.
pub fn set(fault: Option<Fault>) {
    *PRESENT.lock() = fault;
}

pub(crate) fn present() -> Option<Fault> {
    *PRESENT.lock()
}
