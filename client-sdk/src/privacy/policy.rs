//! What an app demands, and what it is shown.

use task_spec::PrivacyMechanism;
use wire::TaskId;

/// What a participant demands of tasks, beyond what a task promises by itself: it takes part in no more rounds than were
/// planned, and where a task's budget is meant for those who know who took part, or for the coordinator, no further than it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PrivacyPolicy {
    /// Refuse tasks without a privacy mechanism.
    pub required: bool,
    /// The most this participant spends on one task: epsilon, at the task's delta, to those who know that it took part.
    pub max_epsilon: Option<f64>,
    /// Refuse promises that may fail with a larger probability than this.
    pub max_delta: Option<f64>,
    /// The most this participant spends on all tasks together, as long as its journal lives. Default: [`Lifetime::default`]; none
    /// for a device that lives for one task, whose own promise is limit enough.
    pub lifetime: Option<Lifetime>,
}

/// What all tasks together may cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lifetime {
    /// Epsilon, to those who know of every round that this participant took part in it. Finite and above 0.
    pub epsilon: f64,
    /// The probability with which that may fail. Between 0 and 1, both excluded.
    pub delta: f64,
}

impl Default for Lifetime {
    /// ε = 10 at δ = 1e-5: one task of ε = 8 with room for a small one, or many of much noise each, and no more. Without
    /// amplification by sampling, for a participant knows when it took part.
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
    /// Whether any promise could meet it.
    pub(crate) fn is_valid(&self) -> bool {
        let (epsilons, deltas) = match self.lifetime {
            Some(Lifetime { epsilon, delta }) => (Some(epsilon), Some(delta)),
            None => (None, None),
        };
        self.max_epsilon.into_iter().chain(epsilons).all(|epsilon| epsilon > 0.0 && epsilon.is_finite())
            && self.max_delta.into_iter().chain(deltas).all(|delta| delta > 0.0 && delta < 1.0)
    }
}

/// What taking part in one task has cost this participant so far, by its own ledger.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PrivacySpent {
    pub task: TaskId,
    pub name: String,
    /// How noise gets in.
    pub mechanism: PrivacyMechanism,
    /// The probability with which the promise may fail.
    pub delta: f64,
    /// Spent, to those who see the models and know that this participant took part.
    pub epsilon: f64,
    /// Spent to the coordinator itself; none where the coordinator adds the noise and is trusted.
    pub server: Option<f64>,
    /// How many updates were charged; one that was made but never summed counts, too.
    pub releases: u64,
    /// After how many this participant stops.
    pub most_releases: u32,
    /// Before which epsilon it stops, if there is a limit beside their number.
    pub limit: Option<f64>,
    /// Why the ledger cannot be trusted, if so: nothing more is sent to this task, and the figures are those last written.
    pub damaged: Option<String>,
}

/// What taking part in all tasks together has cost this participant, by its own ledgers.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct LifetimeSpent {
    /// Spent, to those who know of every round that this participant took part in it; none while a ledger cannot be trusted.
    pub epsilon: Option<f64>,
    /// The probability with which that may fail.
    pub delta: f64,
    /// Before which epsilon it stops, if there is a limit.
    pub limit: Option<f64>,
}
