//! The task specification: the vocabulary of operators and of all crates.
//!
//! A [`TaskSpec`] is read from TOML or JSON, validated once by [`TaskSpec::check`] and stored as written. The types are
//! plain data; `learning`, `federation` and `secure-agg` implement them.

mod analytics;
mod check;
mod device;
mod digest;
mod distribution;
mod initial_model;
mod limits;
mod model;
mod named;
mod pattern;
mod privacy;
mod problem;
mod server;
mod table;
mod task;
mod text;

pub use analytics::{Analytics, MAX_ANALYTICS_BYTES};
pub use device::compression::{CODEC_METRICS, Compression};
pub use device::fairness::Fairness;
pub use device::local::{Budget, MAX_ACCUMULATE, Over, Precision, Schedule, Warmup, step_factor};
pub use device::local_optimizer::LocalOptimizer;
pub use device::on_device::{
    Attribute, Attributes, Criterion, EXAMPLES, GRAPH_VERSION, MAX_CRITERIA, MAX_TEXTS, TABLE_VERSION, eligible,
};
pub use device::personalization::{AdapterScope, BELOW, PERSONAL_PREFIX, Personalization, below};
pub use device::solver::{AdaptiveMu, Solver};
pub use device::training::{MAX_BATCH, MAX_EPOCHS, MAX_STEPS, TrainingPlan};
pub use digest::{BadDigest, Digest};
pub use distribution::{QUANTILES, STEP};
pub use initial_model::{InitialModel, VersionOfTask};
pub use limits::{
    MAX_COHORT, MAX_DEADLINE_MS, MAX_METRICS, MAX_SECURE_COHORT, MAX_STOP_AFTER, MIN_SECURE_COHORT, TRAINING_LOSS,
    USUAL_SECURE_COHORT, is_name,
};
pub use model::{BatchNorm, Initial, ModelSpec, TensorDeclaration};
pub use named::UnknownName;
pub use pattern::matches_pattern;
pub use privacy::{
    AdaptiveClip, Clip, NOISE_RANGE, NoisedBy, OnBudgetEnd, PrivacyAccounting, PrivacyMechanism, PrivacySampler,
    PrivacySpec, PrivacyView, SAMPLING_RATE_MIN, Sampling, TooFewTurns, Turns,
};
pub use problem::{Deployment, SpecError, in_words, wrong_key};
pub use server::aggregation::AggregationSpec;
pub use server::gate::{Better, GateSpec};
pub use server::optimizer::ServerOptimizer;
pub use server::retain::Retain;
pub use server::robust::{MAX_ROBUST_COHORT, RobustRule, RobustSpec};
pub use server::rounds::{KeepBest, RoundsSpec};
pub use server::schedule::{Ahead, LEAST_WEIGHT, MAX_STALENESS, Mode, ScheduleSpec, Staleness};
pub use server::secure_aggregation::SecureAggregationSpec;
pub use server::selection::{Cohort, Oort, PowerOfChoice, Quotas, Requirements, SelectionSpec, Strategy, Stratified};
pub use table::{
    CellValue, EmptyCell, MAX_TABLE_COLUMNS, MAX_TABLE_WORDS, Missing, Percentage, RawCell, TableColumn, TableSpec,
};
pub use task::{Draw, TaskSpec};
pub use text::keys::keys;
pub use text::preset::{PRESETS, Preset};
pub use text::said::said_of;
