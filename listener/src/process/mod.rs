//! What a server process has once: its version, its recorder of metrics, and values behind locks.

pub(crate) mod poison_free_mutex;
pub(crate) mod program;
pub(crate) mod recorder;
