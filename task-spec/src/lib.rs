//! What a task says: the words an operator writes, that every crate speaks.
//!
//! A [`TaskSpec`] is read from TOML or JSON, checked once by [`TaskSpec::check`] and stored as it was written. The types are
//! plain: what a word does is said where it is done, in `learning`, `federation` and `secure-agg`.

mod aggregation;
mod analytics;
mod check;
mod compression;
mod digest;
mod distribution;
mod fairness;
mod gate;
mod local;
mod model;
mod on_device;
mod optimizer;
mod personalization;
mod privacy;
mod robust;
mod rounds;
mod schedule;
mod secure_aggregation;
mod selection;
mod solver;
mod training;

use serde::{Deserialize, Serialize};

pub use aggregation::AggregationSpec;
pub use analytics::{Analytics, MAX_ANALYTICS_BYTES};
pub use check::{Deployment, SpecError};
pub use compression::{CODEC_METRICS, Compression};
pub use digest::{BadDigest, Digest};
pub use distribution::{QUANTILES, STEP};
pub use fairness::Fairness;
pub use gate::{Better, GateSpec};
pub use local::{Budget, MAX_ACCUMULATE, Over, Precision, Schedule, Warmup, step_factor};
pub use model::{Initial, ModelSpec, TensorDeclaration};
pub use on_device::{Attribute, Attributes, Criterion, EXAMPLES, MAX_CRITERIA, MAX_TEXTS, eligible};
pub use optimizer::ServerOptimizer;
pub use personalization::{AdapterHome, BELOW, PERSONAL_PREFIX, Personalization, below};
pub use privacy::{
    AdaptiveClip, Clip, NOISE_RANGE, OnBudgetEnd, PrivacyAccounting, PrivacyMechanism, PrivacySampler, PrivacySpec,
    PrivacyView, SAMPLING_RATE_MIN, Sampling,
};
pub use robust::{MAX_ROBUST_COHORT, RobustRule, RobustSpec};
pub use rounds::{Draw, RoundsSpec};
pub use schedule::{Ahead, LEAST_WEIGHT, MAX_STALENESS, Mode, ScheduleSpec, Staleness};
pub use secure_aggregation::SecureAggregationSpec;
pub use selection::{Cohort, Oort, PowerOfChoice, Quotas, Requirements, SelectionSpec, Strategy, Stratified};
pub use solver::{AdaptiveMu, Solver};
pub use training::TrainingPlan;

/// Largest cohort a round may have.
pub const MAX_COHORT: u32 = 65_536;
/// Longest deadline of a phase: 30 days.
pub const MAX_DEADLINE_MS: u64 = 30 * 24 * 3600 * 1000;
/// Largest cohort of a session of secure aggregation.
pub const MAX_SECURE_COHORT: u32 = 1024;
/// Smallest cohort of a session of secure aggregation: of two, each would learn the other's update from the sum.
pub const MIN_SECURE_COHORT: u32 = 3;
/// Fewest participants of a session of secure aggregation that apps take part in, and with which sessions start, unless they or
/// the task say otherwise: with the usual γ of 0.1 the smallest cohort in which one participant may collude with the coordinator.
pub const USUAL_SECURE_COHORT: u32 = 10;
/// Most metrics a task may name.
pub const MAX_METRICS: usize = 16;
/// The metric that strategies which follow the loss are about: the mean training loss of a participation.
pub const TRAINING_LOSS: &str = "train_loss";

/// A task as an operator writes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TaskSpec {
    /// What people call it: 1 to 64 letters, digits, `-`, `_`, `.`; unique among tasks that are not over.
    pub name: String,
    /// For people.
    #[serde(default)]
    pub description: String,
    /// What is trained.
    #[serde(default)]
    pub model: ModelSpec,
    /// What is computed instead of a trained model: statistics, clusters or trees.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub analytics: Option<Analytics>,
    /// How participants train.
    #[serde(default)]
    pub training: TrainingPlan,
    /// How many rounds and how long each may take.
    #[serde(default)]
    pub rounds: RoundsSpec,
    /// When rounds open, and whether participants train in them or ahead of them.
    #[serde(default, skip_serializing_if = "ScheduleSpec::is_silent")]
    pub schedule: ScheduleSpec,
    /// Who takes part.
    #[serde(default)]
    pub selection: SelectionSpec,
    /// How updates become a new model version.
    #[serde(default)]
    pub aggregation: AggregationSpec,
    /// Whether and how updates are hidden from the coordinator.
    #[serde(default)]
    pub secure_aggregation: SecureAggregationSpec,
    /// In which form updates are uploaded. Default: a word per parameter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compression: Option<Compression>,
    /// How each participant comes by a model of its own. Without it, tensors of `model.personal` just stay at home.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub personalization: Option<Personalization>,
    /// What the published models must not tell about a participant.
    #[serde(default, skip_serializing_if = "PrivacySpec::is_silent")]
    pub privacy: PrivacySpec,
    /// Names of the weighted means that participants report, in the order they travel.
    #[serde(default = "default_metrics")]
    pub metrics: Vec<String>,
}

/// Metrics of the SDK's own trainer: loss and accuracy of the received model on held-out data, and the training loss.
fn default_metrics() -> Vec<String> {
    ["loss", "accuracy", "train_loss"].map(str::to_owned).to_vec()
}

impl TaskSpec {
    /// Whether participants tell their last training loss, coarsely, with each check-in.
    #[must_use]
    pub fn reports_utility(&self) -> bool {
        let selection = &self.selection;
        selection.report_utility || (selection.strategy.follows_the_loss() && !self.secure_aggregation.enabled)
    }

    /// b: updates are sums modulo 2^b.
    #[must_use]
    pub fn modulus_bits(&self) -> u8 {
        let own = self.secure_aggregation.enabled.then_some(self.secure_aggregation.modulus_bits).flatten();
        own.unwrap_or(self.aggregation.modulus_bits)
    }

    /// Each coordinate of an update is clipped to ± this.
    #[must_use]
    pub fn clip_range(&self) -> f32 {
        let own = self.secure_aggregation.enabled.then_some(self.secure_aggregation.clip_range).flatten();
        own.unwrap_or(self.aggregation.clip_range)
    }
}

/// Whether `text` is 1 to 64 letters, digits, `-`, `_` or `.`.
#[must_use]
pub fn is_name(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}
