//! What is trained, by whom, and under which rules: the task an operator writes.
//!
//! A [`TaskSpec`] is read from TOML or JSON, checked once by [`TaskSpec::check`] and stored as it was written. What a phase
//! needs is derived from it by [`TaskSpec::round_limits`].

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::cohort::{Cohort, Requirements, round_up};
use crate::round::{PhaseLimits, RoundLimits, SecureLimits, UnknownName, names};

/// Largest cohort a round may have.
pub const MAX_COHORT: u32 = 65_536;
/// Longest deadline of a phase: 30 days.
pub const MAX_DEADLINE_MS: u64 = 30 * 24 * 3600 * 1000;
/// Largest cohort of a session of secure aggregation.
pub const MAX_SECURE_COHORT: u32 = 1024;
/// Smallest cohort of a session of secure aggregation: of two, each would learn the other's update from the sum.
pub const MIN_SECURE_COHORT: u32 = 3;
/// Most metrics a task may name.
pub const MAX_METRICS: usize = 16;

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
    pub model: ModelSpec,
    /// How participants train.
    #[serde(default)]
    pub training: TrainingPlan,
    /// How many rounds and how long each may take.
    #[serde(default)]
    pub rounds: RoundsSpec,
    /// Who takes part.
    #[serde(default)]
    pub selection: SelectionSpec,
    /// How updates become a new model version.
    #[serde(default)]
    pub aggregation: AggregationSpec,
    /// Whether and how updates are hidden from the coordinator.
    #[serde(default)]
    pub secure_aggregation: SecureAggregationSpec,
    /// Names of the weighted means that participants report, in the order they travel.
    #[serde(default = "default_metrics")]
    pub metrics: Vec<String>,
}

/// The model: its tensors, and which of them stay at home.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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

/// How a participant trains. The SDK's own trainer follows it; an app's trainer is shown it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TrainingPlan {
    /// Passes over the local data; ignored if `steps` is given.
    pub epochs: u32,
    /// Mini-batches, instead of epochs.
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
    /// Makes the draw repeatable, for experiments; without it the draw is random.
    pub seed: Option<u64>,
}

impl Default for SelectionSpec {
    fn default() -> Self {
        Self {
            cohort: Cohort::Count(10),
            over_selection: 0.0,
            strategy: Strategy::Uniform,
            require: Requirements::default(),
            seed: None,
        }
    }
}

/// The selector's name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Strategy {
    /// [`crate::cohort::Uniform`].
    #[default]
    Uniform,
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
}

impl Default for AggregationSpec {
    fn default() -> Self {
        Self {
            optimizer: ServerOptimizer::default(),
            modulus_bits: 32,
            clip_range: 1.0,
            clip_norm: None,
            max_weight: 1000,
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
    /// Fewest participants a session starts with, 3 to 1024.
    pub min_cohort: u32,
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
            min_cohort: MIN_SECURE_COHORT,
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

/// How the mean update steps the model.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum ServerOptimizer {
    /// McMahan et al. 2017: add the mean update, times a learning rate.
    FedAvg {
        /// Usually 1.
        #[serde(default = "one")]
        learning_rate: f64,
    },
}

impl Default for ServerOptimizer {
    fn default() -> Self {
        Self::FedAvg { learning_rate: 1.0 }
    }
}

fn one() -> f64 {
    1.0
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
}

impl TaskStatus {
    /// Every status.
    pub const ALL: [Self; 4] = [Self::Active, Self::Paused, Self::Completed, Self::Cancelled];

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
        }
    }
}

names!(TaskStatus, "task status");

/// What the deployment imposes on every task.
#[derive(Clone, Copy, Debug)]
pub struct Deployment {
    /// The longest a participant may be away between two polls.
    pub poll_interval_ms: u64,
}

/// One thing that is wrong with a task.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{field}: {problem}")]
pub struct SpecError {
    /// Dotted path in the task file.
    pub field: String,
    /// What is wrong and what would be right.
    pub problem: String,
}

impl TaskSpec {
    /// Finds everything that is wrong, so that an operator mends it in one go. The model's shapes and the headroom of its
    /// sums are `learning`'s to check.
    ///
    /// # Errors
    /// All [`SpecError`]s, at least one.
    pub fn check(&self, deployment: &Deployment) -> Result<(), Vec<SpecError>> {
        let mut checks = Checks::default();
        self.check_names(&mut checks);
        self.check_training(&mut checks);
        self.check_selection(&mut checks);
        self.check_rounds(&mut checks, deployment);
        self.check_aggregation(&mut checks);
        if self.secure_aggregation.enabled {
            self.check_secure_aggregation(&mut checks, deployment);
        }
        if checks.0.is_empty() { Ok(()) } else { Err(checks.0) }
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
            secure: self.secure_aggregation.enabled.then_some(SecureLimits {
                threshold: 0,
                share_deadline_ms: self.secure_aggregation.share_deadline_ms,
                confirm_deadline_ms: self.secure_aggregation.confirm_deadline_ms,
                unmask_deadline_ms: self.secure_aggregation.unmask_deadline_ms,
            }),
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
        Draw { cohort, collect_max: self.rounds.collect_max.unwrap_or(target) }
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
        let wanted = self.secure_aggregation.min_cohort.min(MAX_SECURE_COHORT);
        (wanted..=self.rounds.select_max.max(wanted))
            .find(|&eligible| self.draw(eligible).cohort >= wanted)
            .unwrap_or(wanted)
    }

    /// Inputs a round aims at when it opens with as few participants as it may.
    fn smallest_target(&self) -> u32 {
        self.selection.cohort.target(self.select_min())
    }

    fn check_names(&self, checks: &mut Checks) {
        checks.require(is_name(&self.name), "name", "must be 1 to 64 letters, digits, '-', '_' or '.'");
        checks.require(self.description.len() <= 4096, "description", "must be at most 4096 bytes");
        checks.require(
            !self.model.tensors.is_empty(),
            "model.tensors",
            "must name at least one tensor (`tributary task create` fills this in for an architecture it knows)",
        );
        checks.require(self.model.personal.len() <= 256, "model.personal", "must be at most 256 patterns");
        for tensor in &self.model.tensors {
            if let Initial::Uniform { bound } = tensor.init {
                checks.require(
                    bound.is_finite() && bound > 0.0,
                    "model.tensors.init.uniform.bound",
                    "must be positive and finite",
                );
            }
        }
        let unique: std::collections::BTreeSet<_> = self.metrics.iter().collect();
        checks.require(
            self.metrics.len() <= MAX_METRICS
                && unique.len() == self.metrics.len()
                && self.metrics.iter().all(|name| is_name(name)),
            "metrics",
            "must be at most 16 different names of letters, digits, '-', '_' or '.'",
        );
    }

    fn check_training(&self, checks: &mut Checks) {
        let plan = &self.training;
        checks.require((1..=10_000).contains(&plan.epochs), "training.epochs", "must be between 1 and 10000");
        checks.require(
            plan.steps.is_none_or(|steps| (1..=10_000_000).contains(&steps)),
            "training.steps",
            "must be between 1 and 10000000, or left out",
        );
        checks.require((1..=65_536).contains(&plan.batch_size), "training.batch_size", "must be between 1 and 65536");
        checks.require(
            plan.learning_rate.is_finite() && plan.learning_rate > 0.0,
            "training.learning_rate",
            "must be positive and finite",
        );
        checks.require((0.0..1.0).contains(&plan.momentum), "training.momentum", "must be at least 0 and below 1");
        for (field, value) in [("training.weight_decay", plan.weight_decay), ("training.proximal_mu", plan.proximal_mu)]
        {
            checks.require(value.is_finite() && value >= 0.0, field, "must be finite and at least 0");
        }
    }

    fn check_selection(&self, checks: &mut Checks) {
        match self.selection.cohort {
            Cohort::Count(count) => checks.require(
                (1..=MAX_COHORT).contains(&count),
                "selection.cohort.count",
                "must be between 1 and 65536",
            ),
            Cohort::Fraction(fraction) => checks.require(
                fraction > 0.0 && fraction <= 1.0,
                "selection.cohort.fraction",
                "must be above 0 and at most 1",
            ),
        }
        checks.require(
            (0.0..=10.0).contains(&self.selection.over_selection),
            "selection.over_selection",
            "must be between 0 and 10",
        );
    }

    /// Refuses whatever would let a round starve.
    fn check_rounds(&self, checks: &mut Checks, deployment: &Deployment) {
        let rounds = &self.rounds;
        let limits = self.round_limits();
        checks.require((1..=1_000_000).contains(&rounds.count), "rounds.count", "must be between 1 and 1000000");
        checks.require(
            (1..=MAX_COHORT).contains(&rounds.select_max),
            "rounds.select_max",
            "must be between 1 and 65536",
        );
        checks.require(limits.select.min >= 1, "rounds.select_min", "must be at least 1");
        checks.require_with(limits.select.min <= limits.select.max, "rounds.select_min", || {
            format!(
                "is {}, above rounds.select_max = {}: no cohort could ever be drawn",
                limits.select.min, limits.select.max
            )
        });
        checks.require(limits.collect.min >= 1, "rounds.collect_min", "must be at least 1");
        checks.require_with(limits.collect.min <= limits.collect.max, "rounds.collect_min", || {
            format!(
                "is {}, above rounds.collect_max = {}: collection could never close",
                limits.collect.min, limits.collect.max
            )
        });
        let reachable = self.draw(limits.select.min).cohort;
        checks.require_with(limits.collect.min <= reachable, "rounds.collect_min", || {
            format!(
                "is {}, but a cohort drawn from rounds.select_min = {} participants has only {reachable}: lower \
                 collect_min, or raise select_min, the cohort or over_selection",
                limits.collect.min, limits.select.min
            )
        });
        for (field, deadline_ms) in [
            ("rounds.select_deadline_ms", limits.select.deadline_ms),
            ("rounds.collect_deadline_ms", limits.collect.deadline_ms),
        ] {
            checks.require_with((deployment.poll_interval_ms..=MAX_DEADLINE_MS).contains(&deadline_ms), field, || {
                format!(
                    "is {deadline_ms}; it must be at least the poll interval of this coordinator ({} ms), or participants \
                     would hear of the phase after it is over, and at most 30 days",
                    deployment.poll_interval_ms
                )
            });
        }
        checks.require(
            (1..=MAX_DEADLINE_MS).contains(&limits.aggregate_deadline_ms),
            "rounds.aggregate_deadline_ms",
            "must be between 1 ms and 30 days",
        );
    }

    fn check_aggregation(&self, checks: &mut Checks) {
        let aggregation = &self.aggregation;
        let ServerOptimizer::FedAvg { learning_rate } = aggregation.optimizer;
        checks.require(
            learning_rate.is_finite() && learning_rate > 0.0,
            "aggregation.optimizer.learning_rate",
            "must be positive and finite",
        );
        for (field, bits) in [
            ("aggregation.modulus_bits", Some(aggregation.modulus_bits)),
            ("secure_aggregation.modulus_bits", self.secure_aggregation.modulus_bits),
        ] {
            checks.require(bits.is_none_or(|bits| (16..=32).contains(&bits)), field, "must be between 16 and 32");
        }
        for (field, range) in [
            ("aggregation.clip_range", Some(aggregation.clip_range)),
            ("secure_aggregation.clip_range", self.secure_aggregation.clip_range),
        ] {
            let holds = range.is_none_or(|range| range.is_finite() && range > 0.0);
            checks.require(holds, field, "must be positive and finite");
        }
        checks.require(
            aggregation.clip_norm.is_none_or(|norm| norm.is_finite() && norm > 0.0),
            "aggregation.clip_norm",
            "must be positive and finite, or left out",
        );
        checks.require(aggregation.max_weight >= 1, "aggregation.max_weight", "must be at least 1");
    }

    /// What can be said without the protocol; thresholds are `secure-agg`'s to check.
    fn check_secure_aggregation(&self, checks: &mut Checks, deployment: &Deployment) {
        let secure = &self.secure_aggregation;
        checks.require_with(
            (MIN_SECURE_COHORT..=MAX_SECURE_COHORT).contains(&secure.min_cohort),
            "secure_aggregation.min_cohort",
            || format!("is {}; it must be between 3 and 1024", secure.min_cohort),
        );
        checks.require_with(self.rounds.select_max <= MAX_SECURE_COHORT, "rounds.select_max", || {
            format!(
                "is {}; a cohort of secure aggregation has at most {MAX_SECURE_COHORT} participants: lower it, or switch secure \
                 aggregation off (secure_aggregation.enabled = false), which lets the operator read every update",
                self.rounds.select_max
            )
        });
        checks.require(
            (0.0..=0.5).contains(&secure.max_corrupt_fraction),
            "secure_aggregation.max_corrupt_fraction",
            "must be between 0 and 0.5",
        );
        checks.require(
            (0.0..1.0).contains(&secure.max_dropout_fraction),
            "secure_aggregation.max_dropout_fraction",
            "must be at least 0 and below 1",
        );
        let smallest = self.draw(self.select_min()).cohort;
        checks.require_with(smallest >= secure.min_cohort, "secure_aggregation.min_cohort", || {
            format!(
                "is {}, but a cohort drawn from rounds.select_min = {} participants has only {smallest}: raise the cohort or \
                 select_min, or switch secure aggregation off (secure_aggregation.enabled = false), which lets the operator \
                 read every update",
                secure.min_cohort,
                self.select_min()
            )
        });
        for (field, deadline_ms) in [
            ("secure_aggregation.share_deadline_ms", secure.share_deadline_ms),
            ("secure_aggregation.confirm_deadline_ms", secure.confirm_deadline_ms),
            ("secure_aggregation.unmask_deadline_ms", secure.unmask_deadline_ms),
        ] {
            checks.require_with((deployment.poll_interval_ms..=MAX_DEADLINE_MS).contains(&deadline_ms), field, || {
                format!(
                    "is {deadline_ms}; it must be at least the poll interval of this coordinator ({} ms), or participants \
                     would hear of the phase after it is over, and at most 30 days",
                    deployment.poll_interval_ms
                )
            });
        }
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

#[derive(Default)]
struct Checks(Vec<SpecError>);

impl Checks {
    fn require(&mut self, holds: bool, field: &str, problem: &str) {
        self.require_with(holds, field, || problem.to_owned());
    }

    fn require_with(&mut self, holds: bool, field: &str, problem: impl FnOnce() -> String) {
        if !holds {
            self.0.push(SpecError { field: field.to_owned(), problem: problem() });
        }
    }
}
