//! The targets, one file each.

pub mod analytics;
pub mod certificate;
pub mod checkpoint;
pub mod client;
pub mod codec;
pub mod draw;
pub mod graph_decode;
pub mod graph_import;
pub mod idx;
pub mod messages;
pub mod packing;
pub mod partition;
pub mod restore;
pub mod server;
pub mod session;
pub mod signature;
pub mod sum;
pub mod wire_body;
pub mod wire_problem;

#[path = "../../../secure-agg/tests/support/mod.rs"]
pub(crate) mod support;
