//! `[database]`: storage of rows.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use store::PostgresServer;
use zeroize::Zeroizing;

use super::require::require;

/// Where the coordinator keeps its rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DatabaseConfig {
    /// `sqlite:PATH`, or `sqlite::memory:` for a database only in the process; or
    /// `postgres://USER[:PASSWORD]@HOST[:PORT]/DATABASE[?sslmode=…&sslrootcert=FILE]`: see [`PostgresServer::parse`].
    pub url: String,
    /// A file with PostgreSQL's password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password_file: Option<PathBuf>,
    /// Maximum concurrent read connections; with PostgreSQL all connections of this process.
    pub connections: u32,
    /// How long to wait for an unreachable server at start-up; 0 fails at once.
    pub start_timeout_ms: u64,
}

/// Longest wait for a server at start-up.
const START_TIMEOUT_MAX_MS: u64 = 3_600_000;

/// Reasons why the database configuration is unusable.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    /// The URL is not a valid PostgreSQL URL.
    #[error("database.url {0}")]
    Url(String),
    /// The password cannot be read.
    #[error("database.password_file: cannot read {path}: {source}")]
    Password { path: PathBuf, source: std::io::Error },
}

impl Default for DatabaseConfig {
    fn default() -> Self {
        Self {
            url: "sqlite:tributary-data/coordinator.db".to_owned(),
            password_file: None,
            connections: 4,
            start_timeout_ms: 60_000,
        }
    }
}

impl DatabaseConfig {
    pub(super) fn check(&self, problems: &mut Vec<String>) {
        let scheme = self.url.split(':').next().unwrap_or_default();
        match scheme {
            "sqlite" => require(
                problems,
                self.password_file.is_none(),
                "database.password_file: a SQLite database has no password",
            ),
            "postgres" | "postgresql" => match PostgresServer::parse(&self.url) {
                Ok(server) => require(
                    problems,
                    !server.has_password() || self.password_file.is_none(),
                    "database.password_file: there is a password in database.url, too; leave one of them out",
                ),
                Err(problem) => problems.push(format!("database.url {problem}")),
            },
            _ => problems.push(format!(
                "database.url: begins with {scheme:?}; this build knows `sqlite:PATH`, `sqlite::memory:` and `postgres://…`"
            )),
        }
        require(problems, (1..=64).contains(&self.connections), "database.connections: must be between 1 and 64");
        let may_wait = self.start_timeout_ms <= START_TIMEOUT_MAX_MS;
        require(problems, may_wait, "database.start_timeout_ms: must be at most 3600000, an hour");
    }

    /// The PostgreSQL server, with the password from the file, without a final line break.
    ///
    /// # Errors
    /// [`DatabaseError`].
    pub(crate) fn server(&self) -> Result<PostgresServer, DatabaseError> {
        let server = PostgresServer::parse(&self.url).map_err(DatabaseError::Url)?;
        let Some(path) = &self.password_file else { return Ok(server) };
        let wrong = |source| DatabaseError::Password { path: path.clone(), source };
        let password = Zeroizing::new(std::fs::read_to_string(path).map_err(wrong)?);
        Ok(server.with_password(password.trim_end_matches(['\r', '\n']).to_owned()))
    }

    /// Removes a password from the URL.
    pub(super) fn redact(&mut self) {
        if let Some((scheme, rest)) = self.url.split_once("://")
            && let Some((credentials, host)) = rest.rsplit_once('@')
            && let Some((user, _)) = credentials.split_once(':')
        {
            self.url = format!("{scheme}://{user}:***@{host}");
        }
    }
}
