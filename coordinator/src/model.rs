//! What a task's specification means in numbers: its layouts, its codec and the length of its masked inputs.
//!
//! Requests and background work both derive them here from the stored specification, so they cannot disagree.

use std::sync::Arc;

use federation::id::RoundKey;
use federation::task::{Initial, SpecError, TaskSpec};
use learning::{
    Codec, Initializer, Layout, OptimizerSpec, Parameters, Partition, Patterns, QuantizationParams, TensorInit,
    TensorSpec,
};
use secure_agg::SUITE_CHACHA20;
use secure_agg::modular::Modulus;
use secure_agg::params::{InvalidConfig, SessionConfig, VectorShape};
use store::entity::task::TaskRow;
use wire::participant::{Encoding, SessionTerms, application_digest};

/// A task's arithmetic.
#[derive(Clone, Debug)]
pub struct TaskModel {
    /// Every tensor.
    pub whole: Arc<Layout>,
    /// The tensors that are sent, summed and published: all of them unless some stay at home.
    pub shared: Arc<Layout>,
    /// How updates are integers.
    pub codec: Codec,
    /// Of the words.
    pub modulus: Modulus,
    /// How the mean steps the model.
    pub optimizer: OptimizerSpec,
    /// What its sessions of secure aggregation are like; none if its updates are in the clear.
    pub session: Option<Arc<SessionConfig>>,
    partition: Option<Arc<Partition>>,
}

impl TaskModel {
    /// Derives it.
    ///
    /// # Errors
    /// Every field that cannot work. A stored task was checked when it was created and gives none.
    pub fn new(spec: &TaskSpec) -> Result<Self, Vec<SpecError>> {
        let whole = Layout::new(spec.model.tensors.iter().map(tensor_spec).collect())
            .map_err(|error| wrong("model.tensors", error))?;
        let partition = match spec.model.personal.as_slice() {
            [] => None,
            patterns => Some(
                Patterns::new(patterns.to_vec())
                    .and_then(|patterns| whole.partition(&patterns))
                    .map_err(|error| wrong("model.personal", error))?,
            ),
        };
        let whole = Arc::new(whole);
        let shared = partition.as_ref().map_or_else(|| Arc::clone(&whole), |partition| Arc::clone(partition.shared()));
        let aggregation = &spec.aggregation;
        let encoding = encoding(spec);
        let modulus = Modulus::new(encoding.modulus_bits).map_err(|error| wrong("aggregation.modulus_bits", error))?;
        let codec = Codec::new(QuantizationParams {
            parameters: shared.len(),
            modulus_bits: encoding.modulus_bits,
            clip_range: encoding.clip_range,
            clip_norm: encoding.clip_norm,
            max_weight: encoding.max_weight,
            max_cohort: encoding.max_cohort,
            metrics: spec.metrics.len(),
        })
        .map_err(|error| wrong("aggregation", error))?;
        let federation::task::ServerOptimizer::FedAvg { learning_rate } = aggregation.optimizer;
        let optimizer = OptimizerSpec::FedAvg { learning_rate };
        optimizer.check().map_err(|error| wrong("aggregation.optimizer", error))?;
        let session = session_config(spec, &encoding, &codec)?.map(Arc::new);
        Ok(Self { whole, shared, codec, modulus, optimizer, session, partition: partition.map(Arc::new) })
    }

    /// Bytes of one masked input.
    #[must_use]
    pub fn packed_len(&self) -> u64 {
        secure_agg::packing::packed_len(self.codec.len(), self.modulus) as u64
    }

    /// The initial values of the shared tensors, from the task's seed.
    ///
    /// # Errors
    /// A tensor whose initial values cannot be drawn.
    pub fn initial(&self, spec: &TaskSpec) -> Result<Parameters, Vec<SpecError>> {
        let inits: Vec<_> = spec
            .model
            .tensors
            .iter()
            .map(|tensor| TensorInit {
                spec: tensor_spec(tensor),
                init: match tensor.init {
                    Initial::Zeros => Initializer::Zeros,
                    Initial::Uniform { bound } => Initializer::Uniform { bound },
                },
            })
            .collect();
        let whole = learning::initialize(Arc::clone(&self.whole), &inits, spec.model.seed)
            .map_err(|error| wrong("model.tensors.init", error))?;
        match &self.partition {
            None => Ok(whole),
            Some(partition) => {
                let (shared, _) = partition.split(&whole).map_err(|error| wrong("model.personal", error))?;
                Ok(shared)
            }
        }
    }
}

/// How updates of a task become integers.
pub(crate) fn encoding(spec: &TaskSpec) -> Encoding {
    Encoding {
        modulus_bits: spec.modulus_bits(),
        clip_range: spec.clip_range(),
        clip_norm: spec.aggregation.clip_norm,
        max_weight: spec.aggregation.max_weight,
        max_cohort: spec.rounds.select_max,
    }
}

/// What participants are told of a task's sessions.
pub(crate) fn session_terms(spec: &TaskSpec) -> Option<SessionTerms> {
    let model = TaskModel::new(spec).ok()?;
    model.session.map(|config| SessionTerms::from(&*config))
}

/// The round whose turn it is: numbers of spent rounds are not used again.
pub(crate) fn next_round(task: &TaskRow) -> RoundKey {
    let used = task.rounds_completed.saturating_add(task.rounds_forfeited);
    RoundKey { task: task.id, number: used.saturating_add(1) }
}

/// Each participant derives the same from its assignment, and refuses anything else.
fn session_config(
    spec: &TaskSpec,
    encoding: &Encoding,
    codec: &Codec,
) -> Result<Option<SessionConfig>, Vec<SpecError>> {
    let secure = &spec.secure_aggregation;
    if !secure.enabled {
        return Ok(None);
    }
    let small = |value: u32| u16::try_from(value).unwrap_or(u16::MAX);
    let config = SessionConfig {
        suite: SUITE_CHACHA20,
        min_cohort: small(secure.min_cohort),
        max_cohort: small(spec.rounds.select_max),
        max_corrupt: secure.max_corrupt_millionths(),
        max_dropout: secure.max_dropout_millionths(),
        min_included: 0,
        model: VectorShape {
            words: codec.len() as u64,
            modulus_bits: encoding.modulus_bits,
            input_bound: codec.input_bound(),
            noise_margin: 0,
        },
        scalars: VectorShape::NONE,
        application: application_digest(encoding, &spec.metrics).0,
    };
    match config.validate() {
        Ok(()) => Ok(Some(config)),
        Err(error) => Err(wrong(field_of(&error), error)),
    }
}

fn field_of(error: &InvalidConfig) -> &'static str {
    match error {
        InvalidConfig::Cohort { .. } | InvalidConfig::Included { .. } => "secure_aggregation.min_cohort",
        InvalidConfig::Corrupt { .. } => "secure_aggregation.max_corrupt_fraction",
        InvalidConfig::Dropout { .. } => "secure_aggregation.max_dropout_fraction",
        InvalidConfig::Modulus { .. } | InvalidConfig::Headroom { .. } => "secure_aggregation.modulus_bits",
        _ => "secure_aggregation",
    }
}

fn tensor_spec(tensor: &federation::task::TensorDeclaration) -> TensorSpec {
    TensorSpec { name: tensor.name.clone(), shape: tensor.shape.clone() }
}

fn wrong(field: &str, error: impl std::fmt::Display) -> Vec<SpecError> {
    vec![SpecError { field: field.to_owned(), problem: error.to_string() }]
}
