//! The result of a state transition.

use super::snapshot::Snapshot;

/// The result of a state transition.
pub struct Transition<N, M> {
    /// The state that the session enters.
    pub next: N,
    /// The new state as bytes: make it durable before anything is sent.
    pub persist: Snapshot,
    /// Message to the coordinator.
    pub send: M,
}
