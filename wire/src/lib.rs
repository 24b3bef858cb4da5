//! The HTTP contract between coordinator, participants and operators.
