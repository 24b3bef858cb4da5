//! Observability: metrics, logs, health, traces.

pub(crate) mod health;
mod logging;
mod metrics;
mod traces;

pub use logging::{LogLevel, LoggingError, start as start_logging};

pub use metrics::recorder;
pub(crate) use metrics::{count_dropped, fold, rendered};
pub(crate) use traces::{COHORT_MAX, During};
pub use traces::{Collector, CollectorError, SpanQueue, TraceSpan, Traces};
