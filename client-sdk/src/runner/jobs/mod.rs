//! Jobs for the app: what they require of it, and the validation of its answers.

pub(super) mod job;
pub(super) mod manner;
pub(super) mod update;
