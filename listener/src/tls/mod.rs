//! TLS: certificates and keys from files, and the configuration of a listener.

pub(crate) mod acceptor;
mod base;
pub(crate) mod files;
pub(crate) mod server_config;
