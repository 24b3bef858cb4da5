//! Masks and secrets: the secure aggregation protocol, both sides, without I/O.
