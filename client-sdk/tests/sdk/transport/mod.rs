//! Transports.

mod connection;
mod contract;
mod https;
