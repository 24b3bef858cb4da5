//! Models that store their gradient in their core, and their step.

use super::super::error::TrainError;
use super::super::examples::Examples;
use super::super::learner::{Score, StepResult};
use super::core::Core;

/// A model that stores its gradient in its core.
pub(in crate::train) trait Passes {
    fn core(&mut self) -> &mut Core;
    /// Maximum number of examples in a chunk.
    fn most(&self) -> usize;
    /// Stores the gradient of a chunk's mean loss in the core.
    fn backward(&mut self, examples: &Examples<'_>, chunk: &[usize]) -> Result<Score, TrainError>;
}

/// Takes a step on the mean of its chunks' gradients, weighted by their number of examples.
pub(in crate::train) fn step(
    model: &mut impl Passes,
    examples: &Examples<'_>,
    chosen: &[usize],
    rate: f32,
) -> Result<(Score, StepResult), TrainError> {
    let score = gradient(model, examples, chosen)?;
    model.core().step(rate);
    Ok((score, StepResult::Taken))
}

/// Stores the mean of its chunks' gradients in the core.
pub(in crate::train) fn gradient(
    model: &mut impl Passes,
    examples: &Examples<'_>,
    chosen: &[usize],
) -> Result<Score, TrainError> {
    let most = model.most();
    if chosen.len() <= most {
        return model.backward(examples, chosen);
    }
    let mut score = Score::default();
    for (index, chunk) in chosen.chunks(most).enumerate() {
        score.add(model.backward(examples, chunk)?);
        #[expect(clippy::cast_precision_loss, reason = "steps are far below 2^24 examples")]
        let part = chunk.len() as f32 / chosen.len() as f32;
        model.core().accumulate(part, index == 0);
    }
    model.core().take_accumulated();
    Ok(score)
}
