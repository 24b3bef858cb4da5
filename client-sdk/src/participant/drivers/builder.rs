//! Configures and builds a participant.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ring::rand::{SecureRandom, SystemRandom};
use wire::audit::AuditKey;
use wire::certificate::Issuers;
use wire::{Attributes, Digest};
use zeroize::Zeroizing;

use super::driven::{Around, Driven};
use super::driver::{Participant, Slot};
use crate::clock::{Clock, SystemClock};
use crate::conditions::{Always, Conditions, DeviceConditions, DeviceState};
use crate::entropy::SystemSecrets;
use crate::identity::{CertificateError, Evidence, SigningKey};
use crate::journal::Journal;
use crate::participant::api::build_error::BuildError;
use crate::participant::api::error::ParticipantError;
use crate::participant::api::event::Event;
use crate::participant::checks::policy::SecurityPolicy;
use crate::participant::journal::settings::{Saved, Settings};
use crate::participant::machine::Machine;
use crate::participant::task::training_log::{Surroundings, checkpoint_writer};
use crate::pre_issued::{Certificates, PreIssued};
use crate::privacy::PrivacyPolicy;
use crate::trainer::Trainer;
use crate::transport::Transport;
use crate::transport::retry::RetryPolicy;

/// Callback that returns the device's state.
pub(crate) type Report = Box<dyn Fn() -> DeviceState + Send + Sync>;

/// Collects the settings of a participant; made by [`Participant::builder`].
pub struct Builder {
    settings: Settings,
    token: Option<Zeroizing<String>>,
    server: Option<String>,
    ca_pem: Option<String>,
    #[cfg(feature = "https")]
    signed: Option<crate::transport::ServerRoots>,
    #[cfg(feature = "https")]
    proxy: crate::transport::Proxy,
    members_ca_pem: Option<String>,
    transport: Option<Arc<dyn Transport>>,
    journal: Option<Arc<dyn Journal>>,
    trainer: Option<Box<dyn Trainer>>,
    conditions: Box<dyn Conditions>,
    device: Report,
    attributes: Box<dyn Fn() -> Attributes + Send + Sync>,
    observer: Box<dyn Fn(&Event) + Send + Sync>,
    clock: Arc<dyn Clock>,
    checkpoint_every: Duration,
    slice: Duration,
}

impl Participant {
    /// A builder with defaults only.
    #[must_use]
    pub fn builder() -> Builder {
        Builder {
            settings: Settings::default(),
            token: None,
            server: None,
            ca_pem: None,
            #[cfg(feature = "https")]
            signed: None,
            #[cfg(feature = "https")]
            proxy: crate::transport::Proxy::default(),
            members_ca_pem: None,
            transport: None,
            journal: None,
            trainer: None,
            conditions: Box::new(Always),
            device: Box::new(DeviceState::default),
            attributes: Box::new(Attributes::new),
            observer: Box::new(|_| ()),
            clock: Arc::new(SystemClock::new()),
            checkpoint_every: Duration::from_secs(30),
            slice: Duration::from_secs(1),
        }
    }
}

impl Builder {
    /// The coordinator's address, `https://host[:port]`.
    #[must_use]
    pub fn server(mut self, url: impl Into<String>) -> Self {
        self.server = Some(url.into());
        self
    }

    /// The certificate authority that the coordinator's certificate must come from, in PEM. It is the only trusted one.
    #[must_use]
    pub fn ca_pem(mut self, pem: impl Into<String>) -> Self {
        self.ca_pem = Some(pem.into());
        self
    }

    /// Signs each request with the key of the participant's certificate, for a coordinator behind a balancer that ends TLS. `roots`
    /// verify the balancer's TLS certificate; `ca_pem` then only certifies members. Default: TLS passes through to the coordinator.
    /// **The balancer can read data hidden from an attacker on the network**: the enrolment token, models, and updates without masks
    /// (docs/THREAT_MODEL.md).
    #[cfg(feature = "https")]
    #[must_use]
    pub fn signed_requests(mut self, roots: crate::transport::ServerRoots) -> Self {
        self.signed = Some(roots);
        self
    }

    /// The HTTP forward proxy that leads to the coordinator. Default: the one in the environment (`HTTPS_PROXY`,
    /// `ALL_PROXY`, `NO_PROXY`), if any. TLS stays end to end. A transport of the app's own ignores this setting.
    #[cfg(feature = "https")]
    #[must_use]
    pub fn proxy(mut self, proxy: crate::transport::Proxy) -> Self {
        self.proxy = proxy;
        self
    }

    /// The authorities that may certify members, this participant among them: at most 8 certificates in PEM. Name the direct issuers
    /// of members' certificates, not authorities above them. A certificate of any other issuer is rejected at enrolment, at renewal
    /// and in every roster. Default: `ca_pem`, which fits a coordinator that is its own authority. **Such a coordinator can invent
    /// members and so read updates**; name an authority here that does not collude with it.
    #[must_use]
    pub fn members_ca_pem(mut self, pem: impl Into<String>) -> Self {
        self.members_ca_pem = Some(pem.into());
        self
    }

    /// The public key for model provenance, obtained out of band: the output of `tributary audit head`. Models without
    /// its signature are refused ([`Event::Unproven`]). Give several keys during a key replacement. By default the
    /// journal keeps the first signing key, and all others are rejected afterwards ([`Event::KeyPinned`]). A key given
    /// here replaces the kept one.
    #[must_use]
    pub fn coordinator_keys(mut self, keys: impl IntoIterator<Item = AuditKey>) -> Self {
        self.settings.coordinator_keys = keys.into_iter().collect();
        self
    }

    /// Produces evidence for an external authority of members, which sees it before it signs: called with each signing
    /// request in PEM, at enrolment and renewal. The coordinator forwards the returned text, at most 16 KiB, and can
    /// read it: bind it to this request alone, for example as a MAC or signature over it by a key that the coordinator
    /// lacks. Default: empty.
    #[must_use]
    pub fn evidence(mut self, make: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        self.settings.evidence = Evidence::new(make);
        self
    }

    /// A certificate issued by an external authority, for example the company's device management, and its private
    /// key, both in PEM: the chain with the device's own first, the key in PKCS #8. The coordinator then only admits
    /// the certificate: by the token at first, later because the previous certificate vouches for it. The certificate
    /// must be signed by an authority in `members_ca_pem` itself, be for an Ed25519 key, have one URI
    /// `urn:tributary:participant:UUID` among its subject alternative names, which stays the same for the device, and
    /// name clientAuth if it has an extended key usage. The key is kept in the journal, too.
    #[must_use]
    pub fn certificate(self, chain_pem: impl Into<String>, key_pem: impl Into<String>) -> Self {
        let (chain_pem, key_pem) = (chain_pem.into(), Zeroizing::new(key_pem.into()));
        self.certificates(move || PreIssued::from_pem(chain_pem.clone(), &key_pem))
    }

    /// As [`Self::certificate`], for certificates that are renewed: called when the participant is built, and from two
    /// thirds of the present certificate's lifetime until there is a newer one. Must return at once.
    #[must_use]
    pub fn certificates(
        mut self,
        read: impl Fn() -> Result<PreIssued, CertificateError> + Send + Sync + 'static,
    ) -> Self {
        self.settings.certificates = Certificates::new(read);
        self
    }

    /// The one-time token to enrol with; optional once the journal holds a certificate. If that certificate has
    /// expired, or belongs to an authority that the app has dropped ([`Event::AuthorityReplaced`]), a new token
    /// re-enrols the participant; its journal stays valid except for the round in progress. White space around the
    /// token is ignored.
    #[must_use]
    pub fn enrollment_token(mut self, token: impl Into<String>) -> Self {
        let token = Zeroizing::new(token.into());
        // Files and mounted secrets often end with a line break.
        self.token = Some(Zeroizing::new(token.trim().to_owned()));
        self
    }

    /// The participant's name, unless the token sets one.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.settings.name = Some(name.into());
        self
    }

    /// Labels that tasks may select by, for example `region = eu`.
    #[must_use]
    pub fn labels(mut self, labels: BTreeMap<String, String>) -> Self {
        self.settings.labels = labels;
        self
    }

    /// The name of the task this participant has data for; without it, it takes any.
    #[must_use]
    pub fn task(mut self, name: impl Into<String>) -> Self {
        self.settings.task = Some(name.into());
        self
    }

    /// Persistent storage. Required: a participant that loses its journal has to enrol again.
    #[must_use]
    pub fn journal(mut self, journal: impl Journal + 'static) -> Self {
        self.journal = Some(Arc::new(journal));
        self
    }

    #[must_use]
    pub fn trainer(mut self, trainer: impl Trainer + 'static) -> Self {
        self.trainer = Some(Box::new(trainer));
        self
    }

    /// When work may be done; default: always.
    #[must_use]
    pub fn conditions(mut self, conditions: impl Conditions + 'static) -> Self {
        self.conditions = Box::new(conditions);
        self
    }

    /// Sets the required device state. `report` returns the current state and must not block. Work needs both these conditions and
    /// [`Self::conditions`]. The unmet condition is reported by [`Event::HeldUp`] and [`Participant::held_up`].
    #[must_use]
    pub fn device_conditions(
        mut self,
        policy: DeviceConditions,
        report: impl Fn() -> DeviceState + Send + Sync + 'static,
    ) -> Self {
        self.settings.device = Some(policy);
        self.device = Box::new(report);
        self
    }

    /// Wraps the callback that returns the device's state.
    pub(crate) fn map_device<F: Fn() -> DeviceState + Send + Sync + 'static>(
        mut self,
        map: impl FnOnce(Report) -> F,
    ) -> Self {
        self.device = Box::new(map(self.device));
        self
    }

    /// Puts the conditions set so far into others.
    pub(crate) fn map_conditions<C: Conditions + 'static>(
        mut self,
        map: impl FnOnce(Box<dyn Conditions>) -> C,
    ) -> Self {
        self.conditions = Box::new(map(self.conditions));
        self
    }

    /// Attributes that a task's criteria may refer to (`selection.on_device`), for example language or memory;
    /// `examples` is predefined. Must return immediately. The values never leave the device: the coordinator receives
    /// only whether all criteria of a task hold. A criterion on an attribute that is missing here does not hold.
    /// Default: an empty map.
    #[must_use]
    pub fn attributes(mut self, attributes: impl Fn() -> Attributes + Send + Sync + 'static) -> Self {
        self.attributes = Box::new(attributes);
        self
    }

    /// Requirements on secure aggregation beyond those of every session. Default: secure aggregation among at least
    /// ten participants, one of them possibly colluding with the coordinator. Rounds in which the coordinator could read the
    /// update are refused. Every floor below its default is reported by [`Event::Lowered`].
    #[must_use]
    pub fn secure_aggregation(mut self, policy: SecurityPolicy) -> Self {
        self.settings.security = policy;
        self
    }

    /// Requirements on privacy beyond a task's own promise. Default: tasks without a privacy mechanism are accepted,
    /// and all private tasks together spend at most ε = 10 at δ = 1e-5 ([`Lifetime`](crate::Lifetime)).
    #[must_use]
    pub fn privacy(mut self, policy: PrivacyPolicy) -> Self {
        self.settings.privacy = policy;
        self
    }

    /// Most bytes that a task's model (4 per parameter), its file, its local state and an encoded update may take
    /// each; default 256 MB. Larger ones are refused ([`Event::Refused`]) before anything is reserved for them.
    /// Training takes several times as much.
    #[must_use]
    pub fn max_model_bytes(mut self, bytes: u64) -> Self {
        self.settings.max_model_bytes = bytes;
        self
    }

    /// The SHA-256 digests of the graphs that the app accepts, each of a file that `tributary model import` wrote. A
    /// task with another graph is refused ([`Event::Refused`]) before its model is fetched. Tasks without a graph are
    /// not affected. Default: any graph.
    #[must_use]
    pub fn accepted_graphs(mut self, digests: impl IntoIterator<Item = Digest>) -> Self {
        self.settings.accepted_graphs = digests.into_iter().collect();
        self
    }

    /// Whether the journal keeps for the app the published model of each task that its last round began with, and the last version of one
    /// that is over ([`Participant::model`]), all of them together in at most [`Self::max_model_bytes`]; default: yes.
    #[must_use]
    pub fn keep_models(mut self, keep: bool) -> Self {
        self.settings.keep_models = keep;
        self
    }

    /// Makes the participant's rounds repeatable, for experiments: training and rounding become a function of seed,
    /// round and name. Keys, masks, noise and the rounding of private updates stay random. Default: `None`, which is
    /// the private choice.
    #[must_use]
    pub fn seed(mut self, seed: Option<u64>) -> Self {
        self.settings.seed = seed;
        self
    }

    /// Sets an optional setting: calls `set` if there is a value.
    #[must_use]
    pub fn given<T>(self, value: Option<T>, set: impl FnOnce(Self, T) -> Self) -> Self {
        match value {
            Some(value) => set(self, value),
            None => self,
        }
    }

    /// Called with every event, in order; must return at once.
    #[must_use]
    pub fn on_event(mut self, observer: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        self.observer = Box::new(observer);
        self
    }

    /// Replaces HTTPS; then `server` is not needed, and `ca_pem` only without `members_ca_pem`.
    #[must_use]
    pub fn transport(mut self, transport: impl Transport + 'static) -> Self {
        self.transport = Some(Arc::new(transport));
        self
    }

    /// How long a check-in may wait at the coordinator for work; default 25 s.
    #[must_use]
    pub fn check_in_wait(mut self, wait: Duration) -> Self {
        self.settings.wait = wait;
        self
    }

    #[must_use]
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.settings.retry = policy;
        self
    }

    /// Replaces the system's clock.
    #[must_use]
    pub fn clock(mut self, clock: impl Clock + 'static) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Shortest time between two checkpoints that a training writes to the journal; default: 30 s. A process that is
    /// killed while it trains repeats the training since the last one; while the training rests, the journal has the
    /// newest. A checkpoint of the SDK's own trainer takes two to three times the bytes of the model.
    #[must_use]
    pub fn checkpoint_every(mut self, interval: Duration) -> Self {
        self.checkpoint_every = interval;
        self
    }

    /// Longest time that a training runs before the app's conditions are looked at again, at least 10 ms; default: 1 s. If they do not hold, a
    /// training that can is paused between two batches, and goes on from there while its round waits; the SDK's own trainer can.
    #[must_use]
    pub fn training_slice(mut self, slice: Duration) -> Self {
        self.slice = slice.max(Duration::from_millis(10));
        self
    }

    /// Reads the journal and builds the participant, without sending a request.
    ///
    /// # Errors
    /// [`BuildError`].
    pub fn build(mut self) -> Result<Participant, BuildError> {
        let machine = self.machine()?;
        let transport = self.chosen_transport()?;
        let trainer = self.trainer.ok_or(BuildError::Missing("trainer"))?;
        let journal = self.journal.ok_or(BuildError::Missing("journal"))?;
        Ok(Participant {
            machine,
            transport,
            journal,
            trainer: Arc::new(Mutex::new(trainer)),
            conditions: self.conditions,
            device: self.device,
            attributes: self.attributes,
            observer: self.observer,
            clock: self.clock,
            checkpoint_every: self.checkpoint_every,
            slice: self.slice,
            running: Slot::default(),
            identified: None,
        })
    }

    /// Reads the journal and builds the state machine for a caller that drives it: see [`Machine::tick`]. The settings
    /// for performing actions are ignored: the caller supplies server, transport, trainer, conditions, clock,
    /// checkpoints and observer.
    ///
    /// # Errors
    /// [`BuildError`].
    pub fn build_machine(mut self) -> Result<Machine, BuildError> {
        self.machine()
    }

    /// Reads the journal and builds a caller-driven participant, which performs each action on the thread of the
    /// caller. The trainer and the device's state are passed with the calls, so the builder works without them.
    ///
    /// # Errors
    /// [`BuildError`].
    pub fn build_driven(mut self) -> Result<Driven, BuildError> {
        let machine = self.machine()?;
        let transport = self.chosen_transport()?;
        let journal = self.journal.ok_or(BuildError::Missing("journal"))?;
        let surroundings = Surroundings {
            checkpoints: Some(checkpoint_writer(&journal, &self.clock, self.checkpoint_every)),
            slice: Some((Arc::clone(&self.clock), self.slice)),
        };
        let Self { conditions, attributes, observer, clock, .. } = self;
        Driven::new(machine, Around { transport, journal, conditions, attributes, observer, clock, surroundings })
    }

    pub(super) fn chosen_transport(&mut self) -> Result<Arc<dyn Transport>, BuildError> {
        match self.transport.take() {
            Some(transport) => Ok(transport),
            #[cfg(feature = "https")]
            None => Ok(Arc::new(self.https()?.through(&self.proxy)?)),
            #[cfg(not(feature = "https"))]
            None => {
                drop(self.server.take());
                Err(BuildError::Missing("transport"))
            }
        }
    }

    #[cfg(feature = "https")]
    fn https(&self) -> Result<crate::transport::HttpsTransport, BuildError> {
        let server = self.server.as_deref().ok_or(BuildError::Missing("server"))?;
        if let Some(roots) = &self.signed {
            return Ok(crate::transport::HttpsTransport::signed(server, roots, Arc::clone(&self.clock))?);
        }
        let ca_pem = self.ca_pem.as_deref().ok_or(BuildError::Missing("ca_pem"))?;
        Ok(crate::transport::HttpsTransport::new(server, ca_pem)?)
    }

    pub(super) fn machine(&mut self) -> Result<Machine, BuildError> {
        self.check_names()?;
        if !self.settings.security.is_valid() {
            return Err(BuildError::BadPolicy(self.settings.security.min_tolerated_corrupt));
        }
        if !self.settings.privacy.is_valid() {
            return Err(BuildError::BadPrivacyPolicy);
        }
        let members = self.members_ca_pem.as_deref().or(self.ca_pem.as_deref());
        self.settings.members = Issuers::from_pem(members.ok_or(BuildError::Missing("members_ca_pem"))?)?;
        let journal = self.journal.as_ref().ok_or(BuildError::Missing("journal"))?;
        let saved = Saved::load(|name| journal.load(name)).map_err(ParticipantError::from)?;
        let mut entropy = [0; 32];
        SystemRandom::new().fill(&mut entropy).map_err(|_| BuildError::Randomness)?;
        let secrets = Box::new(SystemSecrets::new());
        let (settings, token) = (self.settings.clone(), self.token.take());
        Ok(Machine::new(settings, token, &saved, SigningKey::generate, entropy, secrets)?)
    }

    fn check_names(&self) -> Result<(), BuildError> {
        let settings = &self.settings;
        let name = settings.name.iter().map(|name| ("name", name));
        for (what, value) in name.chain(settings.task.iter().map(|task| ("task", task))) {
            let allowed = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
            if value.is_empty() || value.len() > 64 || !value.bytes().all(allowed) {
                return Err(BuildError::BadName { what, value: value.chars().take(64).collect() });
            }
        }
        let is_short = |text: &String| (1..=128).contains(&text.len());
        match settings.labels.iter().find(|(label, value)| !is_short(label) || !is_short(value)) {
            Some((label, _)) => Err(BuildError::BadLabel { label: label.chars().take(128).collect() }),
            None => Ok(()),
        }
    }
}
