//! `[telemetry]`: logs.

use serde::{Deserialize, Serialize};

use super::require::require;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TelemetryConfig {
    /// `info`, or directives such as `info,coordinator::work=debug`.
    pub level: String,
    /// Format of a log line.
    pub format: LogFormat,
}

/// Format of a log line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One object per line.
    Json,
}

impl Default for TelemetryConfig {
    fn default() -> Self {
        Self { level: "info".to_owned(), format: LogFormat::Text }
    }
}

impl TelemetryConfig {
    pub(super) fn check(&self, problems: &mut Vec<String>) {
        let parsed = self.level.parse::<tracing_subscriber::filter::Targets>();
        require(problems, parsed.is_ok(), format!("telemetry.level: {:?} is not a list of log directives", self.level));
    }
}
