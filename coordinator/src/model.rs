//! What a task's specification means in numbers: its layouts, its codec and the length of its masked inputs.
//!
//! Requests and background work both derive them here from the stored specification, so they cannot disagree.

use std::sync::Arc;

use federation::task::{Initial, SpecError, TaskSpec};
use learning::{
    Codec, Initializer, Layout, OptimizerSpec, Parameters, Partition, Patterns, QuantizationParams, TensorInit,
    TensorSpec,
};
use secure_agg::modular::Modulus;

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
        let modulus =
            Modulus::new(aggregation.modulus_bits).map_err(|error| wrong("aggregation.modulus_bits", error))?;
        let codec = Codec::new(QuantizationParams {
            parameters: shared.len(),
            modulus_bits: aggregation.modulus_bits,
            clip_range: aggregation.clip_range,
            clip_norm: aggregation.clip_norm,
            max_weight: aggregation.max_weight,
            max_cohort: spec.rounds.select_max,
            metrics: spec.metrics.len(),
        })
        .map_err(|error| wrong("aggregation", error))?;
        let federation::task::ServerOptimizer::FedAvg { learning_rate } = aggregation.optimizer;
        let optimizer = OptimizerSpec::FedAvg { learning_rate };
        optimizer.check().map_err(|error| wrong("aggregation.optimizer", error))?;
        Ok(Self { whole, shared, codec, modulus, optimizer, partition: partition.map(Arc::new) })
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

fn tensor_spec(tensor: &federation::task::TensorDeclaration) -> TensorSpec {
    TensorSpec { name: tensor.name.clone(), shape: tensor.shape.clone() }
}

fn wrong(field: &str, error: impl std::fmt::Display) -> Vec<SpecError> {
    vec![SpecError { field: field.to_owned(), problem: error.to_string() }]
}
