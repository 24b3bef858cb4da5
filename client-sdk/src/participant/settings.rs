//! What a participant is told once, and what its journal held.

use std::collections::BTreeMap;
use std::time::Duration;

use wire::certificate::Issuers;
use zeroize::Zeroizing;

use super::policy::SecurityPolicy;
use super::size::USUAL_MAX_MODEL_BYTES;
use super::snapshot;
use crate::identity::Evidence;
use crate::pre_issued::Certificates;
use crate::privacy::PrivacyPolicy;
use crate::transport::retry::RetryPolicy;

/// What a participant is told once.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The task it has data for; any if absent.
    pub task: Option<String>,
    /// What it would like to be called.
    pub name: Option<String>,
    /// Labels it gives itself.
    pub labels: BTreeMap<String, String>,
    /// Makes its rounds repeatable.
    pub seed: Option<u64>,
    /// How long a check-in may wait for work.
    pub wait: Duration,
    /// How failures are spaced.
    pub retry: RetryPolicy,
    /// Who may certify it and the other members of its cohorts. None by default: then no certificate is taken.
    pub members: Issuers,
    /// What the authority of members wants to see.
    pub evidence: Evidence,
    /// Where its certificates come from, if the coordinator is not to have them made.
    pub certificates: Certificates,
    /// What it demands of secure aggregation.
    pub security: SecurityPolicy,
    /// What it demands of privacy.
    pub privacy: PrivacyPolicy,
    /// Bytes that a model, what stays at home of it and an encoded update may take each.
    pub max_model_bytes: u64,
    /// What it does wrong on purpose.
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
            evidence: Evidence::default(),
            certificates: Certificates::default(),
            security: SecurityPolicy::default(),
            privacy: PrivacyPolicy::default(),
            max_model_bytes: USUAL_MAX_MODEL_BYTES,
            #[cfg(feature = "deliberate-faults")]
            fault: None,
        }
    }
}

/// What the journal held.
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
    /// The record [`snapshot::GIVEN`].
    pub given: Option<Zeroizing<Vec<u8>>>,
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
            given: load(snapshot::GIVEN)?,
        })
    }
}
