//! `[database]`: where rows are.

use serde::{Deserialize, Serialize};

use super::require::require;

/// Where rows are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DatabaseConfig {
    /// `sqlite:PATH`, or `sqlite::memory:` for one that vanishes with the process.
    pub url: String,
    /// Connections that read at once.
    pub connections: u32,
}

impl Default for DatabaseConfig {
    fn default() -> Self {
        Self { url: "sqlite:tributary-data/coordinator.db".to_owned(), connections: 4 }
    }
}

impl DatabaseConfig {
    pub(super) fn check(&self, problems: &mut Vec<String>) {
        let scheme = self.url.split(':').next().unwrap_or_default();
        require(
            problems,
            scheme == "sqlite",
            format!("database.url: begins with {scheme:?}; this build knows `sqlite:PATH` and `sqlite::memory:`"),
        );
        require(problems, (1..=64).contains(&self.connections), "database.connections: must be between 1 and 64");
    }

    /// Takes a password out of the URL.
    pub(super) fn redact(&mut self) {
        if let Some((scheme, rest)) = self.url.split_once("://")
            && let Some((credentials, host)) = rest.rsplit_once('@')
        {
            let user = credentials.split(':').next().unwrap_or_default();
            self.url = format!("{scheme}://{user}:***@{host}");
        }
    }
}
