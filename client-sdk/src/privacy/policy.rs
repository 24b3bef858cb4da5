//! An app's privacy requirements, and the spending.

use serde::Deserialize;
use task_spec::PrivacyMechanism;
use wire::TaskId;

/// Requirements beyond a task's own promise. In any case a participant takes part in at most the planned number of
/// rounds. It also stays within a task's budget, if the budget is meant for observers with knowledge of the members, or for the
/// coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PrivacyPolicy {
    /// Refuse tasks without a privacy mechanism.
    pub required: bool,
    /// Maximum epsilon spent on one task, at the task's delta, towards observers that know of this participation.
    pub max_epsilon: Option<f64>,
    /// Maximum delta of a task's promise.
    pub max_delta: Option<f64>,
    /// Limit on all tasks together, over the journal's lifetime. Default: [`Lifetime::default`]. `None` for a device with a single
    /// task: the limit is then the task's own promise.
    pub lifetime: Option<Lifetime>,
}

/// Limit on the cost of all tasks together.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Lifetime {
    /// Epsilon towards observers that know every round of this participant. Finite and above 0.
    pub epsilon: f64,
    /// Delta: the probability that the bound fails. Between 0 and 1, both excluded.
    pub delta: f64,
}

impl Default for Lifetime {
    /// ε = 10 at δ = 1e-5: one task of ε = 8 and a small one, or many tasks with much noise each. Without
    /// amplification by sampling, since a participant knows when it took part.
    fn default() -> Self {
        Self { epsilon: 10.0, delta: 1e-5 }
    }
}

impl Default for PrivacyPolicy {
    fn default() -> Self {
        Self { required: false, max_epsilon: None, max_delta: None, lifetime: Some(Lifetime::default()) }
    }
}

impl PrivacyPolicy {
    /// Whether some promise could satisfy the limits.
    pub(crate) fn is_valid(&self) -> bool {
        let (epsilons, deltas) = match self.lifetime {
            Some(Lifetime { epsilon, delta }) => (Some(epsilon), Some(delta)),
            None => (None, None),
        };
        self.max_epsilon.into_iter().chain(epsilons).all(|epsilon| epsilon > 0.0 && epsilon.is_finite())
            && self.max_delta.into_iter().chain(deltas).all(|delta| delta > 0.0 && delta < 1.0)
    }
}

/// Privacy spent on one task so far, from the participant's own ledger.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PrivacySpent {
    pub task: TaskId,
    pub name: String,
    pub mechanism: PrivacyMechanism,
    pub delta: f64,
    /// Epsilon spent towards observers that see the models and know of this participation.
    pub epsilon: f64,
    /// Epsilon spent, to the coordinator itself; `None` where the coordinator adds the noise and is trusted.
    pub server: Option<f64>,
    /// Number of updates charged, including those outside any sum.
    pub releases: u64,
    /// Number of updates after which this participant stops.
    pub most_releases: u32,
    /// Limit on epsilon, if there is one besides the number of updates.
    pub limit: Option<f64>,
    /// Why the ledger failed verification, if it did. The participant then stops sending to this task, and the figures
    /// are those last written.
    pub damaged: Option<String>,
}

/// Privacy spent on all tasks together, from the participant's own ledgers.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct LifetimeSpent {
    /// Epsilon spent towards observers that know every round of this participant; `None` while a ledger fails
    /// verification.
    pub epsilon: Option<f64>,
    /// Delta of that epsilon.
    pub delta: f64,
    /// Limit on epsilon, if there is one.
    pub limit: Option<f64>,
}

impl PrivacySpent {
    /// Its fields as a JSON object.
    #[must_use]
    pub fn data(&self) -> serde_json::Value {
        serde_json::json!({
            "task": self.task,
            "name": self.name,
            "mechanism": self.mechanism,
            "delta": self.delta,
            "epsilon": self.epsilon,
            "server": self.server,
            "releases": self.releases,
            "limit": self.limit,
            "damaged": self.damaged,
        })
    }
}

impl LifetimeSpent {
    /// Its fields as a JSON object.
    #[must_use]
    pub fn data(&self) -> serde_json::Value {
        serde_json::json!({ "epsilon": self.epsilon, "delta": self.delta, "limit": self.limit })
    }
}
