//! Transports.

mod contract;
mod https;
