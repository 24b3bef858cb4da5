//! The task specification: the vocabulary of operators and of all crates.
//!
//! A [`TaskSpec`] is read from TOML or JSON, validated once by [`TaskSpec::check`] and stored as written. The types are
//! plain data; `learning`, `federation` and `secure-agg` implement them.

mod aggregation;
mod analytics;
mod check;
mod compression;
mod digest;
mod distribution;
mod fairness;
mod gate;
mod keys;
mod limits;
mod local;
mod local_optimizer;
mod model;
mod named;
mod on_device;
mod optimizer;
mod personalization;
mod preset;
mod privacy;
mod problem;
mod retain;
mod robust;
mod rounds;
mod said;
mod schedule;
mod secure_aggregation;
mod selection;
mod solver;
mod table;
mod task;
mod training;

pub use aggregation::AggregationSpec;
pub use analytics::{Analytics, MAX_ANALYTICS_BYTES};
pub use compression::{CODEC_METRICS, Compression};
pub use digest::{BadDigest, Digest};
pub use distribution::{QUANTILES, STEP};
pub use fairness::Fairness;
pub use gate::{Better, GateSpec};
pub use keys::keys;
pub use limits::{
    MAX_COHORT, MAX_DEADLINE_MS, MAX_METRICS, MAX_SECURE_COHORT, MIN_SECURE_COHORT, TRAINING_LOSS, USUAL_SECURE_COHORT,
    is_name,
};
pub use local::{Budget, MAX_ACCUMULATE, Over, Precision, Schedule, Warmup, step_factor};
pub use local_optimizer::LocalOptimizer;
pub use model::{Initial, ModelSpec, TensorDeclaration};
pub use named::UnknownName;
pub use on_device::{Attribute, Attributes, Criterion, EXAMPLES, MAX_CRITERIA, MAX_TEXTS, eligible};
pub use optimizer::ServerOptimizer;
pub use personalization::{AdapterScope, BELOW, PERSONAL_PREFIX, Personalization, below};
pub use preset::{PRESETS, Preset};
pub use privacy::{
    AdaptiveClip, Clip, NOISE_RANGE, NoisedBy, OnBudgetEnd, PrivacyAccounting, PrivacyMechanism, PrivacySampler,
    PrivacySpec, PrivacyView, SAMPLING_RATE_MIN, Sampling,
};
pub use problem::{Deployment, SpecError, in_words, wrong_key};
pub use retain::Retain;
pub use robust::{MAX_ROBUST_COHORT, RobustRule, RobustSpec};
pub use rounds::RoundsSpec;
pub use said::said_of;
pub use schedule::{Ahead, LEAST_WEIGHT, MAX_STALENESS, Mode, ScheduleSpec, Staleness};
pub use secure_aggregation::SecureAggregationSpec;
pub use selection::{Cohort, Oort, PowerOfChoice, Quotas, Requirements, SelectionSpec, Strategy, Stratified};
pub use solver::{AdaptiveMu, Solver};
pub use table::{MAX_TABLE_COLUMNS, MAX_TABLE_WORDS, TableColumn, TableSpec};
pub use task::{Draw, TaskSpec};
pub use training::{MAX_BATCH, MAX_EPOCHS, MAX_STEPS, TrainingPlan};
