//! What is trained, by whom, and under which rules: the task an operator writes.
//!
//! A [`TaskSpec`] is read from TOML or JSON, checked once by [`TaskSpec::check`] and stored as it was written. What a phase
//! needs is derived from it by [`TaskSpec::round_limits`].

mod analytics;
mod check;
mod compression;
mod distribution;
mod fairness;
mod gate;
mod local;
mod optimizer;
mod personalization;
mod privacy;
mod robust;
mod schedule;
mod solver;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::cohort::{
    Cohort, Criterion, Oort, PowerOfChoice, Requirements, RoundRobin, Selector, Stratified, Uniform, round_up,
};
use crate::groups::GroupLimits;
use crate::round::{PhaseLimits, RoundLimits, SecureLimits, UnknownName, names};
pub use analytics::{Analytics, MAX_ANALYTICS_BYTES};
pub use check::{Deployment, SpecError};
pub use compression::{CODEC_METRICS, Compression};
pub use distribution::{QUANTILES, STEP};
pub use fairness::Fairness;
pub use gate::{Better, GateSpec, Measured, Verdict};
pub use local::{Budget, MAX_ACCUMULATE, Over, Precision, Schedule, Warmup, step_factor};
pub use optimizer::ServerOptimizer;
pub use personalization::{AdapterHome, BELOW, PERSONAL_PREFIX, Personalization, below};
pub use privacy::{
    Clip, OnBudgetEnd, PrivacyAccounting, PrivacyMechanism, PrivacySampler, PrivacySpec, PrivacyView, Sampling,
};
pub use robust::{MAX_ROBUST_COHORT, RobustRule, RobustSpec};
pub use schedule::{Ahead, LEAST_WEIGHT, MAX_STALENESS, Mode, Opening, ScheduleSpec, Staleness};
pub use solver::{AdaptiveMu, Solver};

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

/// The model: its tensors, and which of them stay at home.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ModelSpec {
    /// For participants whose SDK brings the model, for example `{ kind = "mlp", … }`; the coordinator does not read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub architecture: Option<serde_json::Value>,
    /// Every tensor, in the order of the flat vector. May be left out in a task file whose architecture `tributary` knows.
    #[serde(default)]
    pub tensors: Vec<TensorDeclaration>,
    /// Patterns (`fc2.*`) of tensors that each participant keeps to itself.
    #[serde(default)]
    pub personal: Vec<String>,
    /// Seed of the initial values.
    #[serde(default)]
    pub seed: u64,
}

/// One tensor and how it starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TensorDeclaration {
    /// Unique within the model.
    pub name: String,
    /// Dimensions, outermost first.
    pub shape: Vec<u64>,
    /// Initial values.
    #[serde(default)]
    pub init: Initial,
}

/// Initial values of a tensor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Initial {
    /// All zero.
    #[default]
    Zeros,
    /// Uniform in (-bound, bound).
    Uniform {
        /// Positive and finite.
        bound: f32,
    },
}

impl ModelSpec {
    /// The bound of each tensor's initial values, in order; nothing where they are zero.
    pub fn bounds(&self) -> impl Iterator<Item = Option<f32>> {
        self.tensors.iter().map(|tensor| match tensor.init {
            Initial::Zeros => None,
            Initial::Uniform { bound } => Some(bound),
        })
    }
}

/// How a participant trains. The SDK's own trainer follows it; an app's trainer is shown it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TrainingPlan {
    /// Passes over the local data; ignored if `steps` is given.
    pub epochs: u32,
    /// Steps, instead of epochs.
    pub steps: Option<u32>,
    /// Examples in a mini-batch.
    pub batch_size: u32,
    /// Of the local optimizer.
    pub learning_rate: f64,
    /// Of the local optimizer, in [0, 1).
    pub momentum: f64,
    /// L2 penalty.
    pub weight_decay: f64,
    /// FedProx μ: how strongly the local model is held to the received one.
    pub proximal_mu: f64,
    /// Weighs updates by loss. Default: by examples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fairness: Option<Fairness>,
    /// What keeps participants together that take unequal steps on unlike data. Default: nothing, FedAvg.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub solver: Option<Solver>,
    /// Adapts `proximal_mu` from round to round. Participants are told the μ of the round.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adaptive_mu: Option<AdaptiveMu>,
    /// Mini-batches whose gradients are averaged into one step, 1 to 1024.
    #[serde(skip_serializing_if = "is_one")]
    pub accumulate: u32,
    /// The gradient of each step is scaled down to this L2 norm, before everything that is added to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gradient_clip: Option<f64>,
    /// How the learning rate changes. Default: it does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<Schedule>,
    /// How the learning rate begins. Default: as it goes on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warmup: Option<Warmup>,
    /// When a device stops before it has done everything. Default: it does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// Numbers to compute with, where the device has them.
    #[serde(skip_serializing_if = "Precision::is_full")]
    pub precision: Precision,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_one(value: &u32) -> bool {
    *value == 1
}

impl Default for TrainingPlan {
    fn default() -> Self {
        Self {
            epochs: 1,
            steps: None,
            batch_size: 32,
            learning_rate: 0.1,
            momentum: 0.0,
            weight_decay: 0.0,
            proximal_mu: 0.0,
            fairness: None,
            solver: None,
            adaptive_mu: None,
            accumulate: 1,
            gradient_clip: None,
            schedule: None,
            warmup: None,
            budget: None,
            precision: Precision::F32,
        }
    }
}

/// How many rounds, and the limits of each phase. What is left out is derived from the cohort.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RoundsSpec {
    /// The task is complete after so many rounds.
    pub count: u32,
    /// The task is paused after so many failed attempts at one round; 0 to keep trying.
    pub max_attempts: u32,
    /// Eligible participants needed before a cohort is drawn. Default: the cohort's count, or 2 for a fraction.
    pub select_min: Option<u32>,
    /// Largest cohort, over-selection included.
    pub select_max: u32,
    /// How long to wait for participants.
    pub select_deadline_ms: u64,
    /// Masked inputs without which the round fails. Default: half of the smallest target.
    pub collect_min: Option<u32>,
    /// Masked inputs with which collection closes early. Default: the target, over-selection not counted.
    pub collect_max: Option<u32>,
    /// How long participants may train and upload.
    pub collect_deadline_ms: u64,
    /// How long summing and publishing may take.
    pub aggregate_deadline_ms: u64,
}

impl Default for RoundsSpec {
    fn default() -> Self {
        Self {
            count: 10,
            max_attempts: 0,
            select_min: None,
            select_max: 1024,
            select_deadline_ms: 600_000,
            collect_min: None,
            collect_max: None,
            collect_deadline_ms: 600_000,
            aggregate_deadline_ms: 600_000,
        }
    }
}

/// Who takes part in a round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SelectionSpec {
    /// How many inputs a round aims at.
    pub cohort: Cohort,
    /// Additional participants to draw, as a part of the target, against dropouts: 0.2 draws 12 for a target of 10.
    pub over_selection: f64,
    /// How they are chosen.
    pub strategy: Strategy,
    /// What they must fulfil.
    pub require: Requirements,
    /// What a device decides about itself: it answers yes or no, and why stays there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub on_device: Vec<Criterion>,
    /// Makes the draw repeatable, for experiments; without it the draw is random.
    pub seed: Option<u64>,
    /// Asks participants to tell their last training loss, coarsely ([`crate::cohort::CoarseLoss`]), with each check-in: what
    /// a strategy that follows the loss needs and secure aggregation hides. Without secure aggregation such a strategy asks
    /// for it by itself.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub report_utility: bool,
}

impl Default for SelectionSpec {
    fn default() -> Self {
        Self {
            cohort: Cohort::Count(10),
            over_selection: 0.0,
            strategy: Strategy::Uniform,
            require: Requirements::default(),
            on_device: Vec::new(),
            seed: None,
            report_utility: false,
        }
    }
}

/// How participants are chosen among those eligible: `"uniform"`, `"round_robin"`, `{ stratified = { label = "region" } }`,
/// `{ power_of_choice = { candidates = 30 } }`, `{ oort = {} }`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Strategy {
    /// Every subset is equally likely.
    #[default]
    Uniform,
    /// Whoever waited longest.
    RoundRobin,
    /// A share for each value of a label.
    Stratified(Stratified),
    /// Of a random few, those with the highest loss.
    PowerOfChoice(PowerOfChoice),
    /// Those whose data still teaches the model and who are fast.
    Oort(Oort),
}

impl Strategy {
    /// The selector it names.
    #[must_use]
    pub fn selector(&self) -> &dyn Selector {
        match self {
            Self::Uniform => &Uniform,
            Self::RoundRobin => &RoundRobin,
            Self::Stratified(selector) => selector,
            Self::PowerOfChoice(selector) => selector,
            Self::Oort(selector) => selector,
        }
    }

    /// Whether it needs to know participants' losses.
    #[must_use]
    pub fn follows_the_loss(&self) -> bool {
        matches!(self, Self::PowerOfChoice(_) | Self::Oort(_))
    }

    /// Whether a draw by it may count as random sampling that amplifies privacy: only if it depends on nothing that
    /// participants did or are.
    #[must_use]
    pub fn allows_amplification(&self) -> bool {
        matches!(self, Self::Uniform)
    }

    /// The stable name, as in a task file.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::RoundRobin => "round_robin",
            Self::Stratified(_) => "stratified",
            Self::PowerOfChoice(_) => "power_of_choice",
            Self::Oort(_) => "oort",
        }
    }
}

/// How updates are encoded, summed and applied.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AggregationSpec {
    /// The server optimizer.
    pub optimizer: ServerOptimizer,
    /// Updates are sums modulo 2^bits, 16 to 32.
    pub modulus_bits: u8,
    /// Each coordinate of an update is clipped to ± this.
    pub clip_range: f32,
    /// The whole update is scaled down to this L2 norm.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clip_norm: Option<f32>,
    /// An update weighs as many as its training examples, at most this.
    pub max_weight: u32,
    /// Combines updates so that a few hostile ones cannot steer the model. Left out: their weighted mean.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub robust: Option<RobustSpec>,
    /// Refuses a version that made a metric fall too far, and rolls back. Left out: every version stays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gate: Option<GateSpec>,
}

impl Default for AggregationSpec {
    fn default() -> Self {
        Self {
            optimizer: ServerOptimizer::default(),
            modulus_bits: 32,
            clip_range: 1.0,
            clip_norm: None,
            max_weight: 1000,
            robust: None,
            gate: None,
        }
    }
}

/// Secure aggregation: on unless it is switched off. The coordinator derives the thresholds from these numbers and the
/// cohort's size; every participant does the same and refuses to take part under weaker ones.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SecureAggregationSpec {
    /// False: the operator of the coordinator can read every update.
    pub enabled: bool,
    /// Fewest participants a session starts with, 3 to 1024; see [`TaskSpec::session_min`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_cohort: Option<u32>,
    /// γ: the part of the cohort that may collude with the coordinator without learning more than the sum, 0 to 0.5.
    pub max_corrupt_fraction: f64,
    /// δ: the part of the cohort that may drop out without costing the round, below 1.
    pub max_dropout_fraction: f64,
    /// Instead of `aggregation.modulus_bits`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modulus_bits: Option<u8>,
    /// Instead of `aggregation.clip_range`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clip_range: Option<f32>,
    /// How long participants may take to deal key shares.
    pub share_deadline_ms: u64,
    /// How long the included participants may take to sign whose inputs are included.
    pub confirm_deadline_ms: u64,
    /// How long those who signed may take to answer with the shares that open the sum.
    pub unmask_deadline_ms: u64,
}

impl Default for SecureAggregationSpec {
    fn default() -> Self {
        Self {
            enabled: true,
            min_cohort: None,
            max_corrupt_fraction: 0.1,
            max_dropout_fraction: 0.3,
            modulus_bits: None,
            clip_range: None,
            share_deadline_ms: 60_000,
            confirm_deadline_ms: 60_000,
            unmask_deadline_ms: 60_000,
        }
    }
}

impl SecureAggregationSpec {
    /// Updates in the clear.
    #[must_use]
    pub fn disabled() -> Self {
        Self { enabled: false, ..Self::default() }
    }

    /// γ in millionths, rounded.
    #[must_use]
    pub fn max_corrupt_millionths(&self) -> u32 {
        millionths(self.max_corrupt_fraction)
    }

    /// δ in millionths, rounded.
    #[must_use]
    pub fn max_dropout_millionths(&self) -> u32 {
        millionths(self.max_dropout_fraction)
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, which is meant")]
fn millionths(fraction: f64) -> u32 {
    (fraction * 1e6).round() as u32
}

/// Metrics of the SDK's own trainer: loss and accuracy of the received model on held-out data, and the training loss.
fn default_metrics() -> Vec<String> {
    ["loss", "accuracy", "train_loss"].map(str::to_owned).to_vec()
}

/// Where a task stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum TaskStatus {
    /// Rounds run.
    Active,
    /// No new round opens; the present one runs on.
    Paused,
    /// All rounds are done.
    Completed,
    /// Ended by an operator.
    Cancelled,
    /// Another round would spend more than the privacy budget: no new round opens. For an operator to look at.
    BudgetExhausted,
}

impl TaskStatus {
    /// Every status.
    pub const ALL: [Self; 5] = [Self::Active, Self::Paused, Self::Completed, Self::Cancelled, Self::BudgetExhausted];

    /// Whether the task is over.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Cancelled)
    }

    /// The stable name, as in JSON and in rows.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "ACTIVE",
            Self::Paused => "PAUSED",
            Self::Completed => "COMPLETED",
            Self::Cancelled => "CANCELLED",
            Self::BudgetExhausted => "BUDGET_EXHAUSTED",
        }
    }
}

names!(TaskStatus, "task status");

impl TaskSpec {
    /// Whether participants tell their last training loss, coarsely, with each check-in.
    #[must_use]
    pub fn reports_utility(&self) -> bool {
        let selection = &self.selection;
        selection.report_utility || (selection.strategy.follows_the_loss() && !self.secure_aggregation.enabled)
    }

    /// What each phase of a round needs.
    #[must_use]
    pub fn round_limits(&self) -> RoundLimits {
        let rounds = &self.rounds;
        let select_min = self.select_min();
        RoundLimits {
            select: PhaseLimits { min: select_min, max: rounds.select_max, deadline_ms: rounds.select_deadline_ms },
            collect: PhaseLimits {
                min: rounds.collect_min.unwrap_or(self.smallest_target().div_ceil(2)),
                max: rounds.collect_max.unwrap_or(rounds.select_max),
                deadline_ms: rounds.collect_deadline_ms,
            },
            aggregate_deadline_ms: rounds.aggregate_deadline_ms,
            sampled: None,
            round_trip_ms: None,
            secure: self.secure_aggregation.enabled.then_some(SecureLimits {
                threshold: 0,
                share_deadline_ms: self.secure_aggregation.share_deadline_ms,
                confirm_deadline_ms: self.secure_aggregation.confirm_deadline_ms,
                unmask_deadline_ms: self.secure_aggregation.unmask_deadline_ms,
            }),
            groups: self.group_size().map(|size| GroupLimits { size, count: 0, needed: 0, collect_min: 0 }),
        }
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

    /// How many to draw and how many inputs to aim at, given how many are eligible.
    #[must_use]
    pub fn draw(&self, eligible: u32) -> Draw {
        let target = self.selection.cohort.target(eligible).min(self.rounds.select_max);
        let wanted = round_up(f64::from(target) * (1.0 + self.selection.over_selection));
        let cohort = wanted.max(target).min(self.rounds.select_max).min(eligible);
        // Whole groups.
        let cohort = self.group_size().map_or(cohort, |size| cohort - cohort % size);
        Draw { cohort, collect_max: self.rounds.collect_max.unwrap_or(target) }
    }

    /// s: how many participants share a session of secure aggregation, where the cohort is divided into groups.
    #[must_use]
    pub fn group_size(&self) -> Option<u32> {
        let size = self.aggregation.robust.as_ref().and_then(|robust| robust.group_size);
        size.filter(|size| self.secure_aggregation.enabled && *size > 0)
    }

    /// Fewest participants that a session of secure aggregation starts with: what `secure_aggregation.min_cohort` says. Without it
    /// [`USUAL_SECURE_COHORT`] where every cohort that is drawn has so many, and 3 where not: then a member that turns out to be none
    /// may be missing from the roster.
    #[must_use]
    pub fn session_min(&self) -> u32 {
        if let Some(least) = self.group_size().or(self.secure_aggregation.min_cohort) {
            return least;
        }
        // How many a sample has depends on chance.
        let is_usual = self.privacy.sampling.is_none() && self.draw(self.select_min()).cohort >= USUAL_SECURE_COHORT;
        if is_usual { USUAL_SECURE_COHORT } else { MIN_SECURE_COHORT }
    }

    fn select_min(&self) -> u32 {
        self.rounds.select_min.unwrap_or(match self.selection.cohort {
            Cohort::Count(count) => count,
            Cohort::Fraction(_) if self.secure_aggregation.enabled => self.smallest_drawing(),
            Cohort::Fraction(_) => 2,
        })
    }

    /// How many must be eligible for a fraction of them to make a cohort of secure aggregation.
    fn smallest_drawing(&self) -> u32 {
        let wanted = self.secure_aggregation.min_cohort.unwrap_or(MIN_SECURE_COHORT).min(MAX_SECURE_COHORT);
        (wanted..=self.rounds.select_max.max(wanted))
            .find(|&eligible| self.draw(eligible).cohort >= wanted)
            .unwrap_or(wanted)
    }

    /// Inputs a round aims at when it opens with as few participants as it may.
    fn smallest_target(&self) -> u32 {
        self.selection.cohort.target(self.select_min())
    }
}

/// How a cohort is drawn from those eligible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    /// Participants to assign, over-selection included.
    pub cohort: u32,
    /// Masked inputs with which collection closes early.
    pub collect_max: u32,
}

/// Whether `text` is 1 to 64 letters, digits, `-`, `_` or `.`.
#[must_use]
pub fn is_name(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}
