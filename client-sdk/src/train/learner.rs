//! What every model on its device is to training.

use super::constraints::Flat;
use super::error::TrainError;
use super::examples::Examples;

/// Sums over predictions.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Score {
    pub(super) loss: f64,
    pub(super) correct: u64,
    pub(super) predictions: u64,
}

impl Score {
    pub(super) fn add(&mut self, other: Self) {
        self.loss += other.loss;
        self.correct += other.correct;
        self.predictions += other.predictions;
    }

    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
    pub(super) fn mean(&self) -> (f64, f64) {
        let predictions = self.predictions.max(1) as f64;
        (self.loss / predictions, self.correct as f64 / predictions)
    }
}

/// What became of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Taken,
    /// The gradient left the range of 16 bits: the loss is scaled up less from now on.
    Skipped,
}

/// A model on its device. Examples have been checked against the model; `chosen` are indices of examples, at most as
/// many as the learner was made for where they are not a step's.
pub(super) trait Learner {
    /// One step of gradient descent with this learning rate on the chosen examples, however many, in chunks of what the
    /// learner was made for; scores them as they were before it.
    fn step(&mut self, examples: &Examples<'_>, chosen: &[usize], rate: f32) -> Result<(Score, Step), TrainError>;
    /// The gradient of the chosen examples' mean loss, flat, in the layout's order.
    fn gradient(&mut self, examples: &Examples<'_>, chosen: &[usize]) -> Result<(Score, Vec<f32>), TrainError>;
    /// Scores the chosen examples.
    fn score(&mut self, examples: &Examples<'_>, chosen: &[usize]) -> Result<Score, TrainError>;
    /// What to keep to from the next step on.
    fn constrain(&mut self, constraints: &Flat<'_>) -> Result<(), TrainError>;
    /// The parameters, flat, in the layout's order.
    fn values(&self) -> Result<Vec<f32>, TrainError>;
}
