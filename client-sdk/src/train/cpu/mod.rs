//! Training on one CPU core: forward and backward passes written out, on buffers that live as long as the run.
//!
//! candle is the other way to the same numbers and serves the GPUs; a test holds the two against each other. This one is
//! several times faster on small batches, and the same on each run: one thread, a fixed order of sums.

mod buffer;
mod classifier;
mod conv;
mod core;
mod dense;
mod elementwise;
mod gates;
mod gemm;
mod images;
mod loss;
mod recurrent;

use self::classifier::Classifier;
use self::core::Core;
use self::recurrent::Recurrent;
use super::config::SgdConfig;
use super::error::TrainError;
use super::{Examples, Learner, Score, Step};
use crate::models::Architecture;

/// The model on the CPU, ready to take steps in chunks of at most `batch` of the examples.
pub(super) fn learner(
    architecture: &Architecture,
    start: &[f32],
    config: &SgdConfig,
    examples: &Examples<'_>,
    batch: usize,
) -> Box<dyn Learner> {
    match architecture {
        Architecture::Linear(sizes) => {
            Box::new(Classifier::dense("linear", &[sizes.inputs, sizes.classes], start, config, batch))
        }
        Architecture::Mlp(sizes) => Box::new(Classifier::dense("mlp", &sizes.widths(), start, config, batch)),
        Architecture::Cnn(sizes) => Box::new(Classifier::cnn(sizes, start, config, batch)),
        Architecture::Gru(sizes) => Box::new(Recurrent::new(sizes, start, config, examples.length(), batch)),
    }
}

/// A model that leaves its gradient in its core.
trait Passes {
    fn core(&mut self) -> &mut Core;
    /// The most examples of a chunk.
    fn most(&self) -> usize;
    /// Leaves the gradient of a chunk's mean loss in the core.
    fn backward(&mut self, examples: &Examples<'_>, chunk: &[usize]) -> Result<Score, TrainError>;
}

/// A step on the mean of its chunks' gradients, each counting for as much as it has examples.
fn step(
    model: &mut impl Passes,
    examples: &Examples<'_>,
    chosen: &[usize],
    rate: f32,
) -> Result<(Score, Step), TrainError> {
    let most = model.most();
    if chosen.len() <= most {
        let score = model.backward(examples, chosen)?;
        model.core().step(rate);
        return Ok((score, Step::Taken));
    }
    let mut score = Score::default();
    for (index, chunk) in chosen.chunks(most).enumerate() {
        score.add(model.backward(examples, chunk)?);
        #[expect(clippy::cast_precision_loss, reason = "steps are far below 2^24 examples")]
        let part = chunk.len() as f32 / chosen.len() as f32;
        model.core().accumulate(part, index == 0);
    }
    model.core().take_accumulated();
    model.core().step(rate);
    Ok((score, Step::Taken))
}
