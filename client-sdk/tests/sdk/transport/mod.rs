//! Transports.

mod https;
