//! A participant's settings as data, for the language bindings and for apps with a configuration file.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ring::rand::{SecureRandom as _, SystemRandom};
use serde::Deserialize;
use task_spec::Attributes;
use wire::Digest;
use wire::audit::AuditKey;
use zeroize::{Zeroize as _, Zeroizing};

use super::jobs::constraints::Capabilities;
use super::key_store::KeyStore;
use super::stored::Stored;
use crate::clock::SystemClock;
use crate::conditions::{DeviceConditions, DeviceState};
use crate::journal::{FileJournal, JournalFiles, JournalKey, refuse_sealed};
use crate::participant::{BuildError, Builder, Participant, ParticipantError, SecurityPolicy};
use crate::privacy::PrivacyPolicy;
use crate::transport::address::authority;
use crate::transport::{Carrier, HttpTransport, RequestSigner};
#[cfg(feature = "https")]
use crate::transport::{Proxy, ServerRoots};

/// The settings of a [`Builder`] under the same names, read from JSON. Unknown keys are rejected.
///
/// ```
/// # use client_sdk::runner::Options;
/// let text = r#"{ "server": "https://federation.example:8443", "ca_pem": "…", "journal": "journal",
///                 "secure_aggregation": { "min_cohort": 50 }, "privacy": { "required": true } }"#;
/// let options: Options = serde_json::from_str(text)?;
/// # Ok::<_, serde_json::Error>(())
/// ```
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// [`Builder::server`].
    pub server: String,
    /// [`Builder::ca_pem`]; not needed with `signed_requests` and `members_ca_pem`.
    #[serde(default)]
    pub ca_pem: Option<String>,
    /// [`Builder::enrollment_token`].
    #[serde(default)]
    pub token: Option<String>,
    /// Folder of the journal ([`JournalFiles`]); created if missing.
    pub journal: PathBuf,
    /// File of the journal's key; default: the folder's name with `.key`.
    #[serde(default)]
    pub journal_key: Option<PathBuf>,
    /// File of the journal's generation; default: the folder's name with `.generation`.
    #[serde(default)]
    pub journal_generation: Option<PathBuf>,
    /// [`Builder::name`].
    #[serde(default)]
    pub name: Option<String>,
    /// [`Builder::task`].
    #[serde(default)]
    pub task: Option<String>,
    /// [`Builder::labels`].
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// [`Builder::attributes`].
    #[serde(default)]
    pub attributes: Attributes,
    /// [`Runner::set_examples`](super::Runner::set_examples).
    #[serde(default)]
    pub examples: u64,
    /// [`Capabilities::within`].
    #[serde(default)]
    pub trains_within: bool,
    /// [`Capabilities::adapters`].
    #[serde(default)]
    pub trains_adapters: bool,
    /// [`Capabilities::analyses`].
    #[serde(default)]
    pub answers_analyses: bool,
    /// [`Capabilities::base_model`](field@Capabilities::base_model).
    #[serde(default)]
    pub base_model: Option<PathBuf>,
    /// [`Builder::members_ca_pem`].
    #[serde(default)]
    pub members_ca_pem: Option<String>,
    /// [`Builder::coordinator_keys`].
    #[serde(default)]
    pub coordinator_keys: Vec<AuditKey>,
    /// [`Builder::signed_requests`], with the trust store of the device or `balancer_ca_pem`. An app's own client
    /// ([`Options::transport`]) decides on trust itself.
    #[serde(default)]
    pub signed_requests: bool,
    /// CA of the balancer's certificate.
    #[serde(default)]
    pub balancer_ca_pem: Option<String>,
    /// [`Builder::proxy`]. An app's own client ([`Options::transport`]) has a setting of its own.
    #[cfg(feature = "https")]
    #[serde(default)]
    pub proxy: Proxy,
    /// [`Builder::secure_aggregation`].
    #[serde(default)]
    pub secure_aggregation: SecurityPolicy,
    /// [`Builder::privacy`].
    #[serde(default)]
    pub privacy: PrivacyPolicy,
    /// [`Builder::max_model_bytes`].
    #[serde(default)]
    pub max_model_bytes: Option<u64>,
    /// [`Builder::accepted_graphs`].
    #[serde(default)]
    pub accepted_graphs: Vec<Digest>,
    /// [`Builder::keep_models`].
    #[serde(default)]
    pub keep_models: Option<bool>,
    /// [`Builder::device_conditions`]; [`Runner::set_device`](super::Runner::set_device) reports the state.
    #[serde(default)]
    pub device_conditions: Option<DeviceConditions>,
    /// [`Builder::checkpoint_every`], in milliseconds.
    #[serde(default)]
    pub checkpoint_every_ms: Option<u64>,
    /// [`Builder::training_slice`], in milliseconds.
    #[serde(default)]
    pub training_slice_ms: Option<u64>,
    /// [`Builder::seed`].
    #[serde(default)]
    pub seed: Option<u64>,
}

impl Options {
    /// For [`Runner::start_with`](super::Runner::start_with) and [`CallbackTrainer::with_capabilities`](super::CallbackTrainer::with_capabilities).
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        Capabilities {
            within: self.trains_within,
            adapters: self.trains_adapters,
            analyses: self.answers_analyses,
            base_model: self.base_model.clone(),
        }
    }

    /// Opens the journal and applies all settings. Only a trainer is missing.
    ///
    /// # Errors
    /// [`BuildError`] if the journal cannot be opened.
    pub fn into_builder(self) -> Result<Builder, BuildError> {
        let journal = self.journal()?;
        Ok(self.with_journal(journal))
    }

    /// The same with the journal's key and generation in the device's key store, where a missing key is created.
    ///
    /// # Errors
    /// [`BuildError`] if the journal cannot be opened, or if the options name files for the two as well.
    pub fn into_builder_with_keys(self, keys: Arc<dyn KeyStore>) -> Result<Builder, BuildError> {
        let journal = self.journal_with_keys(keys)?;
        Ok(self.with_journal(journal))
    }

    /// Opens only the journal, for an app that uses a model without a participant
    /// ([`Model::load_of`](crate::Model::load_of)).
    ///
    /// # Errors
    /// [`BuildError`] if the journal cannot be opened, for example because a participant has it open.
    pub fn journal(&self) -> Result<FileJournal, BuildError> {
        let beside = JournalFiles::beside(&self.journal);
        let files = JournalFiles {
            key: self.journal_key.clone().unwrap_or(beside.key),
            generation: self.journal_generation.clone().unwrap_or(beside.generation),
            folder: beside.folder,
        };
        Ok(files.open().map_err(ParticipantError::from)?)
    }

    /// The same with key and generation in the device's key store.
    ///
    /// # Errors
    /// As for [`Self::into_builder_with_keys`].
    pub fn journal_with_keys(&self, keys: Arc<dyn KeyStore>) -> Result<FileJournal, BuildError> {
        if self.journal_key.is_some() || self.journal_generation.is_some() {
            return Err(BuildError::TwoKeys);
        }
        let key = match keys.key().map_err(ParticipantError::from)? {
            Some(key) => key,
            None => self.make_key(&*keys)?,
        };
        Ok(FileJournal::open(&self.journal, key, Stored(keys)).map_err(ParticipantError::from)?)
    }

    /// Stores the key before its first use. Fails if records are sealed with another key.
    fn make_key(&self, keys: &dyn KeyStore) -> Result<JournalKey, BuildError> {
        let gone = || "the device's key store has no key".to_owned();
        refuse_sealed(&self.journal, gone).map_err(ParticipantError::from)?;
        let mut key = Zeroizing::new([0; JournalKey::BYTES]);
        SystemRandom::new().fill(&mut *key).map_err(|_| BuildError::Randomness)?;
        keys.save(<dyn KeyStore>::KEY, &*key).map_err(ParticipantError::from)?;
        Ok(JournalKey::new(key))
    }

    /// The transport over the app's own HTTP client, for [`Builder::transport`]. With `signed_requests` each request is
    /// signed; otherwise the client presents the participant's certificate.
    ///
    /// # Errors
    /// [`BuildError`] if the server's address is invalid.
    pub fn transport<C: Carrier>(&self, client: C) -> Result<HttpTransport<C>, BuildError> {
        let server = authority(&self.server)?;
        if !self.signed_requests {
            return Ok(HttpTransport::new(client));
        }
        let signer = RequestSigner::new(server.as_str(), Arc::new(SystemClock::new()));
        Ok(HttpTransport::signed(client, signer))
    }

    fn with_journal(mut self, journal: FileJournal) -> Builder {
        let attributes = std::mem::take(&mut self.attributes);
        let token = self.token.take().map(Zeroizing::new);
        let builder = Participant::builder()
            .server(std::mem::take(&mut self.server))
            .journal(journal)
            .labels(std::mem::take(&mut self.labels))
            .attributes(move || attributes.clone())
            .coordinator_keys(std::mem::take(&mut self.coordinator_keys))
            .accepted_graphs(std::mem::take(&mut self.accepted_graphs))
            .secure_aggregation(self.secure_aggregation)
            .privacy(self.privacy)
            .seed(self.seed)
            .given(token, |builder, token| builder.enrollment_token(token.as_str()))
            .given(self.ca_pem.take(), Builder::ca_pem)
            .given(self.members_ca_pem.take(), Builder::members_ca_pem)
            .given(self.name.take(), Builder::name)
            .given(self.task.take(), Builder::task)
            .given(self.max_model_bytes, Builder::max_model_bytes)
            .given(self.device_conditions, |builder, policy| builder.device_conditions(policy, DeviceState::default))
            .given(self.checkpoint_every_ms.map(Duration::from_millis), Builder::checkpoint_every)
            .given(self.training_slice_ms.map(Duration::from_millis), Builder::training_slice)
            .given(self.keep_models, Builder::keep_models);
        #[cfg(feature = "https")]
        let builder = {
            let roots = || self.balancer_ca_pem.take().map_or(ServerRoots::Device, ServerRoots::Pem);
            let roots = self.signed_requests.then(roots);
            builder.proxy(std::mem::take(&mut self.proxy)).given(roots, Builder::signed_requests)
        };
        builder
    }
}

impl Drop for Options {
    fn drop(&mut self) {
        self.token.zeroize();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<Options, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_left_out_is_as_in_a_builder() {
        let options = read(r#"{ "server": "https://here", "journal": "j" }"#).unwrap();
        assert_eq!(options.secure_aggregation, SecurityPolicy::default());
        assert_eq!(options.privacy, PrivacyPolicy::default());
        let some = r#"{ "server": "https://here", "journal": "j", "attributes": { "memory_gb": 4, "language": "de" },
                        "secure_aggregation": { "required": false }, "privacy": { "lifetime": { "epsilon": 3 } } }"#;
        let options = read(some).unwrap();
        assert_eq!(options.secure_aggregation, SecurityPolicy::optional());
        assert_eq!(options.privacy.lifetime.map(|lifetime| (lifetime.epsilon, lifetime.delta)), Some((3.0, 1e-5)));
        assert_eq!(options.attributes.len(), 2);
        assert_eq!(options.capabilities(), Capabilities::default());
        let able = read(r#"{ "server": "https://here", "journal": "j", "trains_within": true }"#).unwrap();
        assert_eq!(able.capabilities(), Capabilities { within: true, ..Capabilities::default() });
        let able = read(r#"{ "server": "https://here", "journal": "j", "answers_analyses": true }"#).unwrap();
        assert_eq!(able.capabilities(), Capabilities { analyses: true, ..Capabilities::default() });
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (json, why) in [
            (r#"{ "journal": "j" }"#, "missing field `server`"),
            (r#"{ "server": "https://here", "journal": "j", "tokens": "t" }"#, "unknown field `tokens`"),
            (
                r#"{ "server": "https://here", "journal": "j", "secure_aggregation": { "cohort": 3 } }"#,
                "unknown field `cohort`",
            ),
            (r#"{ "server": "https://here", "journal": "j", "max_model_bytes": -1 }"#, "-1"),
        ] {
            let error = read(json).err().unwrap_or_default();
            assert!(error.contains(why), "{error}");
        }
    }
}
