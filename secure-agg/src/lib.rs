//! Masks and secrets: the secure aggregation protocol, both sides, without I/O.

pub mod mask;
pub mod modular;
pub mod packing;
