//! HTTPS connections.

mod client;
