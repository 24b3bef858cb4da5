//! A participant's settings, and the records of its journal.

use std::collections::BTreeMap;
use std::time::Duration;

use wire::Digest;
use wire::audit::AuditKey;
use wire::certificate::Issuers;
use zeroize::Zeroizing;

use super::snapshot;
use crate::conditions::DeviceConditions;
use crate::identity::Evidence;
use crate::participant::checks::policy::SecurityPolicy;
use crate::participant::checks::size::USUAL_MAX_MODEL_BYTES;
use crate::pre_issued::Certificates;
use crate::privacy::PrivacyPolicy;
use crate::transport::retry::RetryPolicy;

/// Settings of a participant, from its builder.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Name of the task it has data for; any task if `None`.
    pub task: Option<String>,
    /// Requested at enrolment; a name that the token sets comes first.
    pub name: Option<String>,
    pub labels: BTreeMap<String, String>,
    /// Seed that makes its rounds repeatable.
    pub seed: Option<u64>,
    /// How long a check-in may wait for work.
    pub wait: Duration,
    pub retry: RetryPolicy,
    /// Authorities that may certify it and the other members. Empty by default: then every certificate is rejected.
    pub members: Issuers,
    /// The keys one of which must have signed where models come from; if empty, the first that did.
    pub coordinator_keys: Vec<AuditKey>,
    /// Evidence for an external authority of members.
    pub evidence: Evidence,
    /// Source of externally issued certificates, if any.
    pub certificates: Certificates,
    /// Its requirements on secure aggregation.
    pub security: SecurityPolicy,
    /// Its requirements on privacy.
    pub privacy: PrivacyPolicy,
    /// Maximum bytes of a model, of its local state and of an encoded update, each.
    pub max_model_bytes: u64,
    /// Digests of the graphs that it trains; empty for any graph.
    pub accepted_graphs: Vec<Digest>,
    /// Whether the journal keeps published models for the app.
    pub keep_models: bool,
    /// Required state of the device; any state by default.
    pub device: Option<DeviceConditions>,
    /// A deliberate fault, for audits.
    #[cfg(feature = "deliberate-faults")]
    pub fault: Option<crate::faults::Fault>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            task: None,
            name: None,
            labels: BTreeMap::new(),
            seed: None,
            wait: Duration::from_secs(25),
            retry: RetryPolicy::default(),
            members: Issuers::default(),
            coordinator_keys: Vec::new(),
            evidence: Evidence::default(),
            certificates: Certificates::default(),
            security: SecurityPolicy::default(),
            privacy: PrivacyPolicy::default(),
            max_model_bytes: USUAL_MAX_MODEL_BYTES,
            accepted_graphs: Vec::new(),
            keep_models: true,
            device: None,
            #[cfg(feature = "deliberate-faults")]
            fault: None,
        }
    }
}

/// The records found in the journal.
#[derive(Default)]
pub struct Saved {
    /// The record [`snapshot::IDENTITY`].
    pub identity: Option<Zeroizing<Vec<u8>>>,
    /// The record [`snapshot::NEXT_KEY`].
    pub next_key: Option<Zeroizing<Vec<u8>>>,
    /// The record [`snapshot::ROUND`].
    pub round: Option<Zeroizing<Vec<u8>>>,
    /// The record [`snapshot::PRIVACY`].
    pub privacy: Option<Zeroizing<Vec<u8>>>,
    /// The record [`snapshot::UPDATE`].
    pub update: Option<Zeroizing<Vec<u8>>>,
    /// The record [`snapshot::BATCH`]; `None` if the journal lacks it.
    pub batch: Option<Zeroizing<Vec<u8>>>,
    /// The record [`snapshot::PROVENANCE`].
    pub provenance: Option<Zeroizing<Vec<u8>>>,
    /// The record [`snapshot::TRAINING`].
    pub training: Option<Zeroizing<Vec<u8>>>,
    /// The record [`snapshot::TRAFFIC`].
    pub traffic: Option<Zeroizing<Vec<u8>>>,
    /// The record [`snapshot::REFUSALS`].
    pub refusals: Option<Zeroizing<Vec<u8>>>,
    /// The record [`snapshot::MODELS`].
    pub models: Option<Zeroizing<Vec<u8>>>,
}

impl Saved {
    /// Loads each record by its name.
    ///
    /// # Errors
    /// The first error of `load`.
    pub fn load<E>(mut load: impl FnMut(&str) -> Result<Option<Zeroizing<Vec<u8>>>, E>) -> Result<Self, E> {
        Ok(Self {
            identity: load(snapshot::IDENTITY)?,
            next_key: load(snapshot::NEXT_KEY)?,
            round: load(snapshot::ROUND)?,
            privacy: load(snapshot::PRIVACY)?,
            update: load(snapshot::UPDATE)?,
            batch: load(snapshot::BATCH)?,
            provenance: load(snapshot::PROVENANCE)?,
            training: load(snapshot::TRAINING)?,
            traffic: load(snapshot::TRAFFIC)?,
            refusals: load(snapshot::REFUSALS)?,
            models: load(snapshot::MODELS)?,
        })
    }
}
