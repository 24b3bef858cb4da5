//! Jobs for the app: their requirements, and the validation of its answers.

pub(super) mod asking;
pub(super) mod constraints;
pub(super) mod job;
pub(super) mod update;
