//! An operator's client of a coordinator: the REST API, downloads of models, and the failures of both.
//!
//! The command line and the model server use it.

pub mod failure;
mod fetch;
pub mod provenance;
mod server;

pub use fetch::{Transfers, fetch};
pub use server::{Condition, Part, Server, Tagged, authorities};
