//! The machine's states.

pub(super) mod joining;
mod training;
