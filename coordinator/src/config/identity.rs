//! `[identity]`: our certificate authority and its certificates, and external authorities of participants.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::blobs::redact_url;
use super::require::require;

/// Our certificate authority and its certificates, and external authorities of participants.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IdentityConfig {
    /// Certificate of the authority in PEM; created at the first start if neither file exists. If both are empty, the authority exists only
    /// in the process.
    pub ca_certificate_file: PathBuf,
    /// Its key in PEM; readable only by its owner.
    pub ca_key_file: PathBuf,
    /// Certificate, in PEM, of another authority for participants: the issuer of their certificates, not an authority above it. The
    /// coordinator never has its key; its own authority then certifies only the server, and is not created if the server presents an
    /// external certificate (`http.certificate_file`). With `signer`, that authority signs on request; without, participants already have
    /// their certificates, and the coordinator signs nothing. Default: the coordinator's own authority certifies participants, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub members_ca_certificate_file: Option<PathBuf>,
    /// Key for sealing stored unmasking answers; created at the first start. Keep it out of database backups. Default: `seal.key` next to
    /// the authority's key, or in memory with an authority in memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seal_key_file: Option<PathBuf>,
    /// `s3://BUCKET/PREFIX` for release keys and ends of privacy ledgers, for coordinators without a common folder. The bucket must keep no
    /// versions, and be excluded from backups. The settings of `[blobs]` apply; deviating ones are appended as in `blobs.replicas`.
    /// Coordinators then never create the sealing key. Default: folders next to the sealing key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seal_url: Option<String>,
    /// Validity of a participant's certificate; it is renewed after two thirds of it. Ignored if participants have external certificates,
    /// whose validity is not limited here.
    pub certificate_lifetime_s: u64,
    /// The signer of that authority.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signer: Option<SignerConfig>,
}

/// The external signer of participants' certificates; `wire::signer` defines the requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignerConfig {
    /// URL for signing requests, `https://…`.
    pub url: String,
    /// Certificate, in PEM, of the only trusted authority for that server.
    pub ca_certificate_file: PathBuf,
    /// A file with the token for `Authorization: Bearer …`, if needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
    /// Timeout of a request.
    #[serde(default = "ten_seconds")]
    pub timeout_ms: u64,
}

fn ten_seconds() -> u64 {
    10_000
}

impl Default for IdentityConfig {
    fn default() -> Self {
        Self {
            ca_certificate_file: "tributary-data/ca.pem".into(),
            ca_key_file: "tributary-data/ca-key.pem".into(),
            members_ca_certificate_file: None,
            seal_key_file: None,
            seal_url: None,
            certificate_lifetime_s: 7 * 24 * 3600,
            signer: None,
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
            "identity.ca_certificate_file and identity.ca_key_file: give both, or neither for an authority in memory; \
             for an authority whose key stays elsewhere there is identity.members_ca_certificate_file",
        );
        require(
            problems,
            self.members_ca_certificate_file.is_some() || self.signer.is_none(),
            "[identity.signer]: give identity.members_ca_certificate_file, too: the certificate of the authority that signs there",
        );
        require(
            problems,
            self.seal_url.is_none() || self.seal_key_file().is_some(),
            "identity.seal_url: give identity.seal_key_file, too: what is there is worth nothing to a key in memory",
        );
        if let Some(signer) = &self.signer {
            require(problems, signer.url.starts_with("https://"), "identity.signer.url: must begin with https://");
            require(
                problems,
                (1..=20_000).contains(&signer.timeout_ms),
                "identity.signer.timeout_ms: must be between 1 and 20000, or participants would not wait for the answer",
            );
        }
    }

    /// Removes credentials from the URL.
    pub(super) fn redact(&mut self) {
        if let Some(url) = &mut self.seal_url {
            redact_url(url);
        }
    }

    /// Whether the authority exists only in the process.
    #[must_use]
    pub fn in_memory(&self) -> bool {
        self.ca_certificate_file.as_os_str().is_empty() && self.ca_key_file.as_os_str().is_empty()
    }

    /// The path of the sealing key; `None` if it exists only in the process.
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
