//! State that a participant keeps across restarts: the records of its journal, and the state in them.

pub(super) mod ahead;
pub(super) mod batch;
pub(super) mod record;
pub(super) mod refusals;
pub(super) mod round_end;
pub(super) mod session;
pub(super) mod settings;
pub mod snapshot;
pub(super) mod traffic;
