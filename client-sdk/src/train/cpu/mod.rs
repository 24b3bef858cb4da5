//! Training on one CPU core: explicit forward and backward passes, on buffers that last for the whole run.
//!
//! candle computes the same numbers and serves the GPUs; a test compares the two. This implementation is several times
//! faster on small batches, and reproducible: one thread, a fixed order of sums.

pub(super) mod buffer;
mod classifier;
mod conv;
pub(super) mod core;
pub(super) mod dense;
mod elementwise;
pub(super) mod gates;
pub(super) mod gemm;
mod images;
mod loss;
pub(super) mod passes;
mod recurrent;

use task_spec::TrainingPlan;

use self::classifier::Classifier;
use self::recurrent::Recurrent;
use super::examples::Examples;
use super::graph::GraphLearner;
use super::learner::Learner;
use crate::models::Architecture;

/// The model on the CPU, for steps in chunks of at most `batch` examples.
pub(super) fn learner(
    architecture: &Architecture,
    start: &[f32],
    plan: &TrainingPlan,
    examples: &Examples<'_>,
    batch: usize,
) -> Box<dyn Learner + Send> {
    match architecture {
        Architecture::Linear(sizes) => {
            Box::new(Classifier::dense("linear", &[sizes.inputs, sizes.classes], start, plan, batch))
        }
        Architecture::Mlp(sizes) => Box::new(Classifier::dense("mlp", &sizes.widths(), start, plan, batch)),
        Architecture::Cnn(sizes) => Box::new(Classifier::cnn(sizes, start, plan, batch)),
        Architecture::Graph(model) => Box::new(GraphLearner::new(model, start, plan, batch)),
        Architecture::Gru(sizes) => Box::new(Recurrent::new(sizes, start, plan, examples.length(), batch)),
    }
}
