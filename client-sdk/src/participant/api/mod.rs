//! What an app sees of a participant: its events and errors.

pub(super) mod build_error;
pub(super) mod error;
pub(super) mod event;
mod event_data;
pub(super) mod plan_error;
