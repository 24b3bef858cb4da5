//! Logs to standard error. Never logged: tokens, keys, contents of certificates, bytes of inputs.

use std::io::IsTerminal as _;

use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Registry, reload};

use crate::config::{LogFormat, TelemetryConfig};

/// Reasons why logging did not start.
#[derive(Debug, thiserror::Error)]
pub enum LoggingError {
    /// The directives are invalid.
    #[error("telemetry.level: {0}")]
    Level(#[from] tracing_subscriber::filter::ParseError),
    /// The log has ended.
    #[error("the log has ended")]
    Ended(#[from] reload::Error),
    /// Logging was already started.
    #[error("logging runs already")]
    Running(#[from] tracing_subscriber::util::TryInitError),
}

/// The level of the process's log, adjustable at run time.
pub struct LogLevel(reload::Handle<Targets, Registry>);

impl LogLevel {
    /// Logs by these directives from now on.
    ///
    /// # Errors
    /// [`LoggingError::Level`]: the level stays.
    pub fn set(&self, directives: &str) -> Result<(), LoggingError> {
        let filter: Targets = directives.parse()?;
        Ok(self.0.reload(filter)?)
    }
}

/// Starts logging for the whole process; for executables.
///
/// # Errors
/// [`LoggingError`].
pub fn start(config: &TelemetryConfig) -> Result<LogLevel, LoggingError> {
    let (filter, level) = reload::Layer::new(config.level.parse::<Targets>()?);
    // Colours are for terminals, not for files.
    let is_seen = std::io::stderr().is_terminal();
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(is_seen);
    let registry = tracing_subscriber::registry().with(filter);
    match config.format {
        LogFormat::Text => registry.with(lines).try_init()?,
        LogFormat::Json => registry.with(lines.json()).try_init()?,
    }
    Ok(LogLevel(level))
}
