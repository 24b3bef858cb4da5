//! The machine's states, its actions and inputs, and the shared state.

pub(super) mod action;
mod attempts;
mod circumstances;
pub(super) mod core;
pub(super) mod joining;
mod persist;
mod sending;
pub(super) mod state;
mod training;
