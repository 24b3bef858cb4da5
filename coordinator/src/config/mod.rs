//! The operator's configuration: one section per file, defaults for everything, unknown keys rejected.
//!
//! A TOML file is read first; `TRIBUTARY_<SECTION>_<KEY>` from the environment overrides it. Only `wiring` (and the tests) read the
//! configuration: other modules get values.

mod aggregation;
mod blobs;
mod database;
mod http;
mod identity;
mod oidc;
mod require;
mod telemetry;
mod traces;
mod work;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use aggregation::AggregationConfig;
pub use blobs::BlobsConfig;
pub use database::{DatabaseConfig, DatabaseError};
pub use http::HttpConfig;
pub use identity::{IdentityConfig, SignerConfig};
pub(crate) use oidc::is_safe;
pub use oidc::{ClientConfig, OidcConfig, OidcGrant, SigningAlgorithm};
pub use telemetry::{LogFormat, TelemetryConfig};
pub use traces::TracesConfig;
pub use work::WorkSection;
pub(crate) use work::is_name;

use require::require;

/// Prefix of all configuration variables in the environment.
pub const ENVIRONMENT_PREFIX: &str = "TRIBUTARY_";

/// All settings of a coordinator.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The listeners and the limits of a peer.
    pub http: HttpConfig,
    /// Where the coordinator keeps its rows.
    pub database: DatabaseConfig,
    /// Storage of models and inputs.
    pub blobs: BlobsConfig,
    /// The device for summing.
    pub aggregation: AggregationConfig,
    pub work: WorkSection,
    pub identity: IdentityConfig,
    /// The operators' identity provider, if configured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oidc: Option<OidcConfig>,
    pub telemetry: TelemetryConfig,
    pub traces: TracesConfig,
}

/// Reasons why a configuration is unusable.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration file {path}: {source}")]
    Read { path: PathBuf, source: std::io::Error },
    /// Not TOML, an unknown key, or a value of the wrong kind.
    #[error("{origin}: {source}")]
    Parse {
        /// The file or variable.
        origin: String,
        /// The error with its position.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Invalid combinations of values.
    #[error("the configuration cannot work:{}", list(.0))]
    Invalid(Vec<String>),
}

fn list(problems: &[String]) -> String {
    problems.iter().map(|problem| format!("\n  {problem}")).collect()
}

impl Config {
    /// Reads `file`, or the defaults without one, applies overrides from `environment`, and checks the result.
    ///
    /// # Errors
    /// [`ConfigError`] with the file or variable and the key.
    pub fn load(
        file: Option<&Path>,
        environment: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        let (text, origin) = match file {
            Some(path) => {
                let text = std::fs::read_to_string(path)
                    .map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
                (text, path.display().to_string())
            }
            None => (String::new(), "defaults".to_owned()),
        };
        Self::parse(&text, &origin, environment)
    }

    /// Parses the configuration from text; errors name `origin`.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn parse(
        text: &str,
        origin: &str,
        environment: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        // The text is parsed alone first, so that an error points at its line.
        let written: Self = toml::from_str(text)
            .map_err(|error| ConfigError::Parse { origin: origin.to_owned(), source: error.into() })?;
        let mut config = written;
        for (name, value) in environment {
            config = config.overridden(&name, &value)?;
        }
        config.check()?;
        Ok(config)
    }

    /// Applies one environment variable; variables without a section name are ignored.
    fn overridden(self, name: &str, value: &str) -> Result<Self, ConfigError> {
        const SECTIONS: [&str; 9] =
            ["http", "database", "blobs", "aggregation", "work", "identity", "oidc", "telemetry", "traces"];
        let Some(rest) = name.strip_prefix(ENVIRONMENT_PREFIX) else { return Ok(self) };
        let rest = rest.to_ascii_lowercase();
        let Some((section, key)) = rest.split_once('_').filter(|(section, _)| SECTIONS.contains(section)) else {
            return Ok(self);
        };
        let wrong = |source| ConfigError::Parse { origin: format!("environment {name}"), source };
        let with = |value: toml::Value| {
            let mut table = toml::Table::try_from(&self).map_err(|error| wrong(error.into()))?;
            let section = table.entry(section).or_insert_with(|| toml::Table::new().into());
            if let Some(section) = section.as_table_mut() {
                section.insert(key.to_owned(), value);
            }
            table.try_into::<Self>().map_err(|error| wrong(error.into()))
        };
        // `8443`, `true` and `["a"]` are TOML; other values, and those of the wrong type, are treated as text.
        let literal =
            toml::from_str::<toml::Table>(&format!("value = {value}")).ok().and_then(|mut t| t.remove("value"));
        match literal.map(&with) {
            Some(Ok(config)) => Ok(config),
            Some(Err(error)) => with(toml::Value::String(value.to_owned())).map_err(|_| error),
            None => with(toml::Value::String(value.to_owned())),
        }
    }

    /// Checks that the values are valid together.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`] with all problems.
    pub fn check(&self) -> Result<(), ConfigError> {
        let mut problems = Vec::new();
        self.http.check(&mut problems);
        self.database.check(&mut problems);
        self.blobs.check(&mut problems);
        self.aggregation.check(&mut problems);
        self.work.check(&mut problems);
        self.identity.check(&mut problems);
        if let Some(oidc) = &self.oidc {
            oidc.check(&mut problems);
            let has_page = oidc.client.is_none() || self.http.dashboard;
            require(
                &mut problems,
                has_page,
                "[oidc.client]: nobody signs in to a dashboard that is not served (http.dashboard)",
            );
        }
        self.telemetry.check(&mut problems);
        self.traces.check(&mut problems);
        if let Some(problem) = self.identity.seal_url.as_ref().and_then(|url| self.blobs.apart(url).err()) {
            problems.push(problem);
        }
        let pre_issued = self.identity.members_ca_certificate_file.is_some() && self.identity.signer.is_none();
        require(
            &mut problems,
            !pre_issued || self.http.certificate_file.is_some(),
            "identity.members_ca_certificate_file without [identity.signer]: participants have certificates of that authority \
             already, and this coordinator is none: give it a server certificate (http.certificate_file and http.key_file)",
        );
        if problems.is_empty() { Ok(()) } else { Err(ConfigError::Invalid(problems)) }
    }

    /// Whether the coordinator needs its own authority: for its own server, or for participants.
    #[must_use]
    pub fn needs_authority(&self) -> bool {
        self.identity.members_ca_certificate_file.is_none() || self.http.certificate_file.is_none()
    }

    /// The effective configuration as TOML, without secrets.
    #[must_use]
    pub fn redacted(&self) -> String {
        let mut shown = self.clone();
        shown.database.redact();
        shown.blobs.redact();
        shown.identity.redact();
        shown.traces.redact();
        toml::to_string_pretty(&shown).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str, environment: &[(&str, &str)]) -> Result<Config, String> {
        let environment = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Config::parse(text, "test.toml", environment).map_err(|error| error.to_string())
    }

    #[test]
    fn nothing_written_is_the_default() {
        assert_eq!(parse("", &[]).unwrap(), Config::default());
    }

    #[test]
    fn the_example_in_docs_is_the_default() {
        let text = include_str!("../../../docs/config/coordinator.toml");
        assert_eq!(parse(text, &[]).unwrap(), Config::default());
    }

    /// The keys of a section, from the error for an unknown key.
    fn keys_of(section: &str) -> Vec<String> {
        let error = parse(&format!("{section}\nno_such_key = 1\n"), &[]).unwrap_err();
        let (_, expected) = error.split_once("expected ").expect("the refusal tells the keys");
        expected.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    }

    #[test]
    fn the_example_in_docs_has_every_key() {
        let text = include_str!("../../../docs/config/coordinator.toml");
        // Settings off by default are comments.
        let lines: Vec<_> = text.lines().map(|line| line.strip_prefix("# ").unwrap_or(line)).collect();
        let mut sections: Vec<String> = keys_of("");
        sections.extend(["identity.signer", "oidc.client"].map(str::to_owned));
        for section in sections {
            let header = format!("[{section}]");
            let begins = lines.iter().position(|line| line.starts_with(&header));
            let within: Vec<_> = lines[begins.unwrap_or_else(|| panic!("no {header}")) + 1..]
                .iter()
                .take_while(|line| !line.starts_with('['))
                .collect();
            for key in keys_of(&header) {
                let is_table = lines.iter().any(|line| line.starts_with(&format!("[{section}.{key}]")));
                assert!(is_table || within.iter().any(|line| line.starts_with(&format!("{key} = "))), "{header} {key}");
            }
        }
    }

    #[test]
    fn unknown_keys_are_refused_with_their_place() {
        let error = parse("[http]\nlisten_on = \"1.2.3.4:5\"\n", &[]).unwrap_err();
        assert!(error.contains("listen_on") && error.contains("line 2") && error.contains("test.toml"), "{error}");
        assert!(parse("[htpp]\n", &[]).unwrap_err().contains("htpp"));
        let error = parse("", &[("TRIBUTARY_HTTP_LISTEN_ON", "x")]).unwrap_err();
        assert!(error.contains("TRIBUTARY_HTTP_LISTEN_ON") && error.contains("listen_on"), "{error}");
    }

    #[test]
    fn the_environment_overrides_the_file() {
        let config = parse(
            "[http]\nlisten = \"127.0.0.1:1\"\npoll_max_ms = 5\n",
            &[
                ("TRIBUTARY_HTTP_LISTEN", "127.0.0.1:2"),
                ("TRIBUTARY_HTTP_PUBLIC_NAMES", "[\"a.example\"]"),
                ("TRIBUTARY_WORK_ENABLED", "false"),
                ("TRIBUTARY_DATA_DIR", "not ours"),
                ("PATH", "/bin"),
            ],
        )
        .unwrap();
        assert_eq!(config.http.listen.port(), 2);
        assert_eq!(config.http.poll_max_ms, 5);
        assert_eq!(config.http.public_names, ["a.example"]);
        assert!(!config.work.enabled);
    }

    #[test]
    fn everything_that_cannot_work_is_told_at_once() {
        let error = parse(
            "[http]\npublic_names = []\nconnections_max = 0\n[identity]\ncertificate_lifetime_s = 1\n\
             [database]\nurl = \"postgres://u:geheim@h\"\n",
            &[],
        )
        .unwrap_err();
        for part in ["public_names", "connections_max", "certificate_lifetime_s", "database.url"] {
            assert!(error.contains(part), "{part} missing in {error}");
        }
        assert!(!error.contains("geheim"));
    }

    #[test]
    fn a_coordinator_that_is_no_authority_has_a_server_certificate_from_elsewhere() {
        let members = "[identity]\nmembers_ca_certificate_file = \"members.pem\"\n";
        let server = "[http]\ncertificate_file = \"server.pem\"\nkey_file = \"key.pem\"\n";
        let signer = "[identity.signer]\nurl = \"https://signer\"\nca_certificate_file = \"ca.pem\"\n";
        let error = parse(members, &[]).unwrap_err();
        assert!(error.contains("http.certificate_file"), "{error}");
        let needs = |text: &[&str]| parse(&text.concat(), &[]).unwrap().needs_authority();
        assert!(!needs(&[server, members]) && !needs(&[server, members, signer]));
        assert!(needs(&[members, signer]) && needs(&[server]) && needs(&[]));
        assert!(parse(signer, &[]).unwrap_err().contains("members_ca_certificate_file"));
    }

    #[test]
    fn what_is_printed_can_be_read_again_and_tells_no_password() {
        let mut config = Config::default();
        assert_eq!(parse(&config.redacted(), &[]).unwrap(), config);
        config.database.url = "postgres://user:geheim@db.example/tributary".to_owned();
        assert!(!config.redacted().contains("geheim"));
        config.database.url = "postgres://user@db.example/tributary".to_owned();
        config.traces.endpoint = Some("https://user:geheim@traces.example/v1/traces".to_owned());
        config.traces.headers = Some("authorization=geheim".to_owned());
        assert!(!config.redacted().contains("geheim"), "{}", config.redacted());
        config.traces = TracesConfig::default();
        assert_eq!(parse(&config.redacted(), &[]).unwrap(), config);
    }

    #[test]
    fn a_database_is_a_file_or_a_server_with_one_password_at_most() {
        let problem = |text: &str| {
            parse(&format!("[database]\n{text}"), &[]).map(drop).map_err(|told| {
                assert!(!told.contains("geheim"), "{told}");
                told
            })
        };
        let server = "url = \"postgres://u@h/d?sslmode=verify-full\"\n";
        problem(&format!("{server}password_file = \"pw\"\n")).unwrap();
        problem("url = \"postgres://u:geheim@h/d\"\n").unwrap();
        for (text, part) in [
            ("url = \"postgres://u:geheim@h/d\"\npassword_file = \"pw\"\n", "database.password_file"),
            ("url = \"sqlite:a.db\"\npassword_file = \"pw\"\n", "no password"),
            ("url = \"postgres://u:geheim@h\"\n", "DATABASE"),
            ("url = \"mysql://u:geheim@h/d\"\n", "mysql"),
        ] {
            let told = problem(text).unwrap_err();
            assert!(told.contains(part), "{text}: {told}");
        }
    }
}
