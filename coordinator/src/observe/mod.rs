//! How the service is seen from outside: metrics, logs, health.

pub(crate) mod health;
mod logging;
mod metrics;

pub use logging::{LoggingError, start as start_logging};
pub use metrics::recorder;
