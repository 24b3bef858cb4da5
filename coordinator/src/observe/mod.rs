//! How the service is seen from outside: metrics, logs, health.

pub(crate) mod health;
mod logging;
mod metrics;

pub use logging::{LoggingError, start as start_logging};
pub(crate) use metrics::count_dropped;
pub use metrics::recorder;
pub(crate) use metrics::rendered;
