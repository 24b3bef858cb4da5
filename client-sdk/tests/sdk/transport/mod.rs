//! Transports.

mod contract;
mod http2;
mod https;
