//! Transports.

mod client;
mod contract;
mod https;
