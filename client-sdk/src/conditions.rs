//! May we work now? Only the app knows whether the device charges, idles and is on a network that costs nothing.
//!
//! The SDK asks before it checks in and between the steps of a round, never in the middle of one.

use std::time::Duration;

/// The app's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// Work may be done.
    Ready,
    /// Not now. A round that has begun is given up, unless its update is made already: sending it, and helping to open the
    /// sum it is in, waits.
    NotReady {
        /// When to ask again.
        ask_again: Duration,
    },
}

/// Asked by the SDK, answered by the app; must answer at once.
pub trait Conditions: Send + Sync {
    /// Whether work may be done now.
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
