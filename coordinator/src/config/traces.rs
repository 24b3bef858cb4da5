//! `[traces]`: export of traces of updates.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::require::require;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TracesConfig {
    /// OTLP endpoint, protobuf over HTTP, for example `https://collector:4318/v1/traces`. Without it, tracing is off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Fraction of updates to trace, 0 to 1.
    pub sample_ratio: f64,
    /// Headers of every export request, `NAME=VALUE` separated by commas; intended for the environment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub headers: Option<String>,
    /// The only trusted authority, in PEM, for its certificate. Default: the machine's trusted authorities.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_certificate_file: Option<PathBuf>,
}

impl Default for TracesConfig {
    fn default() -> Self {
        Self { endpoint: None, sample_ratio: 0.01, headers: None, ca_certificate_file: None }
    }
}

impl TracesConfig {
    pub(super) fn check(&self, problems: &mut Vec<String>) {
        let is_url = |text: &String| {
            let uri: Option<http::Uri> = text.parse().ok();
            uri.is_some_and(|uri| matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some())
        };
        let known = self.endpoint.as_ref().is_none_or(is_url);
        require(problems, known, "traces.endpoint: must begin with http:// or https://");
        let is_part = (0.0..=1.0).contains(&self.sample_ratio);
        require(problems, is_part, format!("traces.sample_ratio: {} is not between 0 and 1", self.sample_ratio));
    }

    /// Removes secrets: headers, and a password in the URL.
    pub(super) fn redact(&mut self) {
        self.headers = None;
        if let Some(endpoint) = &mut self.endpoint {
            super::blobs::redact_url(endpoint);
        }
    }
}
