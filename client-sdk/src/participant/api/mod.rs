//! Events and errors of a participant, for the app.

pub(super) mod build_error;
pub(super) mod error;
pub(super) mod event;
mod event_data;
pub(super) mod plan_error;
