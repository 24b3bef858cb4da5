//! One file per entity: its type, its columns, and all queries and changes of its rows.
//!
//! They are methods of [`Transaction`](crate::Transaction), which gives the statements to a database's driver. A method
//! changes only the rows that its documentation names, and its changes become durable with the transaction or not at all.
//!
//! Conventions: lists are bounded by a `limit` and continue after a `cursor`, the last id seen; a method that returns
//! `bool` returns whether it made the change, so that a caller notices a lost race.

#[macro_use]
pub mod participant;
#[macro_use]
pub mod task;

pub mod admitted;
pub mod assignment;
pub mod batch;
pub mod blob_reference;
pub mod census;
pub mod check_in;
pub mod consistency;
pub mod device;
pub mod doomed;
pub mod event;
pub mod fingerprint;
pub mod idempotency;
pub mod lease;
pub mod listed_assignment;
pub mod model_server;
pub mod model_upload;
pub mod model_version;
pub mod noised_sum;
pub mod open_task;
pub mod partial_sum;
pub mod privacy_ledger;
pub mod provenance;
pub mod round;
pub mod round_summary;
pub mod sampled;
pub mod secret;
pub mod session;
pub mod session_message;
pub mod sign_in;
pub mod standing;
pub mod token;
pub mod training;
pub mod upload;
pub mod used_nonce;
