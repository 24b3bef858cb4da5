//! Parsers for values shared by several subcommands.

use coordinator::config::{Config, TelemetryConfig};

use crate::failure::{Exit, Failure, Outcome};

/// Log directives as `telemetry.level` takes them; [`Exit::Usage`] for any other.
pub(crate) fn log_level(level: &str) -> Outcome<String> {
    let config = Config {
        telemetry: TelemetryConfig { level: level.to_owned(), ..TelemetryConfig::default() },
        ..Config::default()
    };
    config.check().map_err(|error| Failure::new(Exit::Usage, format!("--log: {error}")))?;
    Ok(level.to_owned())
}

/// An id in its text form; [`Exit::Usage`] for any other text.
pub(crate) fn parse_id<T: std::str::FromStr>(what: &str, text: &str) -> Outcome<T>
where
    T::Err: std::fmt::Display,
{
    text.parse().map_err(|error| Failure::new(Exit::Usage, format!("`{text}` is no id of a {what}: {error}")))
}

/// Parses a participant's label.
pub(crate) fn parse_label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("a label is written KEY=VALUE".to_owned()),
    }
}
