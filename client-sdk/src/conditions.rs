//! Conditions for work: only the app knows whether the device is charging, idle and on an unmetered network.
//!
//! The SDK asks before it checks in and between the steps of a round; during a step when the app says that something has
//! changed ([`Participant::conditions_changed`](crate::Participant::conditions_changed)).

use std::time::Duration;

/// The app's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// Work may be done.
    Ready,
    /// Not now. The participant gives up its current round, unless its update is already made: then sending it and
    /// helping to open its sum wait.
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
