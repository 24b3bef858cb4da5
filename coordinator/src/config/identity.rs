//! `[identity]`: our certificate authority and what it issues.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::require;

/// Our certificate authority and what it issues.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IdentityConfig {
    /// Certificate of the authority in PEM; made at the first start if neither file exists. Empty, as is the other: an
    /// authority that vanishes with the process.
    pub ca_certificate_file: PathBuf,
    /// Its key in PEM; kept readable by its owner alone.
    pub ca_key_file: PathBuf,
    /// Seals the answers that open a round's sum, for as long as they are kept; made at the first start. It must not lie
    /// where backups of the database go. Default: `seal.key` beside the authority's key, or in memory with an authority in
    /// memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seal_key_file: Option<PathBuf>,
    /// How long a participant's certificate is good for; renewal is asked for after two thirds of it.
    pub certificate_lifetime_s: u64,
}

impl Default for IdentityConfig {
    fn default() -> Self {
        Self {
            ca_certificate_file: "tributary-data/ca.pem".into(),
            ca_key_file: "tributary-data/ca-key.pem".into(),
            seal_key_file: None,
            certificate_lifetime_s: 7 * 24 * 3600,
        }
    }
}

impl IdentityConfig {
    pub(super) fn check(&self, problems: &mut Vec<String>) {
        require(
            problems,
            (60..=366 * 24 * 3600).contains(&self.certificate_lifetime_s),
            "identity.certificate_lifetime_s: must be between 60 and 31622400 (a minute and a year)",
        );
        require(
            problems,
            self.ca_certificate_file.as_os_str().is_empty() == self.ca_key_file.as_os_str().is_empty(),
            "identity.ca_certificate_file and identity.ca_key_file: give both, or neither for an authority in memory",
        );
    }

    /// Whether the authority vanishes with the process.
    #[must_use]
    pub fn in_memory(&self) -> bool {
        self.ca_certificate_file.as_os_str().is_empty() && self.ca_key_file.as_os_str().is_empty()
    }

    /// Where the sealing key lies; none if it vanishes with the process.
    #[must_use]
    pub fn seal_key_file(&self) -> Option<PathBuf> {
        match &self.seal_key_file {
            Some(path) => Some(path.clone()),
            None if self.in_memory() => None,
            None => Some(self.ca_key_file.with_file_name("seal.key")),
        }
    }

    /// The lifetime of a participant's certificate.
    #[must_use]
    pub fn certificate_lifetime(&self) -> Duration {
        Duration::from_secs(self.certificate_lifetime_s)
    }
}
