//! Components of a federation in one process, for drivers of its time and failures: the simulation, an audit, a test.
//!
//! [`LocalCoordinator`] is the real coordinator over a database in memory, [`Network`] the way to it without a socket, and
//! [`Participant`] the SDK's own machine on a journal in memory.

mod coordinator;
mod network;
mod participant;

pub use coordinator::{LocalCoordinator, in_memory};
pub use network::{Exchange, Network};
pub use participant::{Advance, Participant, signing_key};
