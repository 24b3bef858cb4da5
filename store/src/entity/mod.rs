//! One trait per entity: every question that may be asked of the stored rows, and every change that may be made to them.
//!
//! The traits know no SQL and no database; [`crate::Transaction`] is all of them together. A method changes nothing but
//! the rows its documentation names, and whatever it changes becomes durable with its transaction or not at all.
//!
//! Common rules: lists are bounded by a `limit` and continue after a `cursor`, the last id seen; a method that returns
//! `bool` says whether it changed what it was asked to change, so that a caller who raced another one notices.

pub mod admitted;
pub mod assignment;
pub mod blob_reference;
pub mod check_in;
pub mod idempotency;
pub mod lease;
pub mod model_version;
pub mod noised_sum;
pub mod partial_sum;
pub mod participant;
pub mod privacy_ledger;
pub mod round;
pub mod round_summary;
pub mod sampled;
pub mod secret;
pub mod session;
pub mod session_message;
pub mod task;
pub mod token;
pub mod training;
pub mod unopened;
