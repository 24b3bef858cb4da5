//! `[identity]`: our certificate authority, what it issues, and who else certifies participants.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::blobs::redact_url;
use super::require::require;

/// Our certificate authority, what it issues, and who else certifies participants.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IdentityConfig {
    /// Certificate of the authority in PEM; made at the first start if neither file exists. Empty, as is the other: an
    /// authority that vanishes with the process.
    pub ca_certificate_file: PathBuf,
    /// Its key in PEM; kept readable by its owner alone.
    pub ca_key_file: PathBuf,
    /// Certificate, in PEM, of another authority that certifies participants: the one that signs their own certificates, not one
    /// above it. The coordinator never has its key; its own authority then vouches for the server alone, and is not made where
    /// the server shows a certificate of another (`http.certificate_file`). With `signer` that authority is asked to sign;
    /// without, participants have their certificates from it already, and the coordinator signs nothing at all.
    /// Default: its own authority certifies participants, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub members_ca_certificate_file: Option<PathBuf>,
    /// Seals the answers that open a round's sum, for as long as they are kept; made at the first start. It must not lie
    /// where backups of the database go. Default: `seal.key` beside the authority's key, or in memory with an authority in
    /// memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seal_key_file: Option<PathBuf>,
    /// `s3://BUCKET/PREFIX`, where keys of releases and ends of privacy ledgers are, for coordinators that share no folder. The
    /// bucket keeps no versions, and is in no backup. The settings of `[blobs]` hold for it; those that differ follow as in
    /// `blobs.replicas`. No coordinator makes the sealing key then. Default: folders beside the sealing key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seal_url: Option<String>,
    /// How long a participant's certificate is good for; renewal is asked for after two thirds of it. Ignored where
    /// participants have certificates from elsewhere already: nothing here bounds how long those are good for.
    pub certificate_lifetime_s: u64,
    /// Where that other authority is asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signer: Option<SignerConfig>,
}

/// How participants' certificates are asked for of an authority elsewhere; `wire::signer` says what is sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignerConfig {
    /// Where signing requests are posted, `https://…`.
    pub url: String,
    /// Certificate, in PEM, of the authority that vouches for that server. No other is trusted.
    pub ca_certificate_file: PathBuf,
    /// A file with the token that is sent as `Authorization: Bearer …`, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
    /// Longest that an answer is waited for.
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

    /// Takes out of the URL what does not belong there: credentials.
    pub(super) fn redact(&mut self) {
        if let Some(url) = &mut self.seal_url {
            redact_url(url);
        }
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
