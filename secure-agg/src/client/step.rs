//! What a state yields when it moves on.

use super::snapshot::Snapshot;

/// The outcome of a state that moved on.
pub struct Step<N, M> {
    /// The state that waits for the next message.
    pub next: N,
    /// The same as bytes: durable before anything is sent.
    pub persist: Snapshot,
    /// What the coordinator is told.
    pub send: M,
}
