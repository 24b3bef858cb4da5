//! `[database]`: where rows are.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use store::PostgresServer;
use zeroize::Zeroizing;

use super::require::require;

/// Where rows are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DatabaseConfig {
    /// `sqlite:PATH`, or `sqlite::memory:` for one that vanishes with the process; or
    /// `postgres://USER[:PASSWORD]@HOST[:PORT]/DATABASE[?sslmode=…&sslrootcert=FILE]`: see [`PostgresServer::parse`].
    pub url: String,
    /// A file with PostgreSQL's password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password_file: Option<PathBuf>,
    /// Connections that read at once; with PostgreSQL all of this process.
    pub connections: u32,
}

/// Reasons the database cannot be looked for.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    /// The URL is none of PostgreSQL's.
    #[error("database.url {0}")]
    Url(String),
    /// The password cannot be read.
    #[error("database.password_file: cannot read {path}: {source}")]
    Password { path: PathBuf, source: std::io::Error },
}

impl Default for DatabaseConfig {
    fn default() -> Self {
        Self { url: "sqlite:tributary-data/coordinator.db".to_owned(), password_file: None, connections: 4 }
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
    }

    /// The PostgreSQL server, with the password that the file holds; a line's end after it is not part of it.
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

    /// Takes a password out of the URL.
    pub(super) fn redact(&mut self) {
        if let Some((scheme, rest)) = self.url.split_once("://")
            && let Some((credentials, host)) = rest.rsplit_once('@')
            && let Some((user, _)) = credentials.split_once(':')
        {
            self.url = format!("{scheme}://{user}:***@{host}");
        }
    }
}
