//! Conditions for work: only the app knows whether the device is charging, idle and on an unmetered network. It decides
//! itself ([`Conditions`]), or reports the device's state and leaves the decision to a policy ([`DeviceConditions`]).
//!
//! The SDK checks the conditions before a check-in, between the steps of a round, and periodically during a training with pause
//! support. During other steps it checks them when the app reports a change
//! ([`Participant::conditions_changed`](crate::Participant::conditions_changed)).

mod device;

use std::time::Duration;

pub use device::{DeviceConditions, DeviceState, Thermal, Unmet};

/// Whether the app allows work now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// Work may be done.
    Ready,
    /// Not now. A training that can pauses, and one of an app's own has ten seconds to save a checkpoint; other rounds are given up, unless
    /// their update is already made: then sending it and helping to open its sum wait.
    NotReady {
        /// When to ask again.
        ask_again: Duration,
    },
}

/// Implemented by the app; must answer at once.
pub trait Conditions: Send + Sync {
    fn ready(&self) -> Readiness;
}

/// Always ready: for servers, laptops and tests.
#[derive(Clone, Copy, Debug, Default)]
pub struct Always;

impl Conditions for Always {
    fn ready(&self) -> Readiness {
        Readiness::Ready
    }
}

impl<F: Fn() -> Readiness + Send + Sync> Conditions for F {
    fn ready(&self) -> Readiness {
        self()
    }
}
