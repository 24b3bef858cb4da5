//! The interface of a model on its device.

use super::constraints::Flat;
use super::error::TrainError;
use super::examples::Examples;
use crate::trainer::Interrupt;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
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

/// Further measures of a graph's predictions; `None` where its loss has no such measure.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measures {
    /// Share of predictions with the right class among the five highest scores, 0 to 1; of models with more classes.
    pub top_5: Option<f64>,
    /// Area under the receiver operating characteristic, 0 to 1, of a `bce_with_logits` model; `None` without a positive
    /// or without a negative target.
    pub auc: Option<f64>,
    /// Root of the mean squared error, in units of the targets.
    pub rmse: Option<f64>,
    /// Mean absolute error, in units of the targets.
    pub mae: Option<f64>,
    /// Coefficient of determination, at most 1, of a model that predicts one number: 1 less the squared error's share of the
    /// targets' squared distance from their mean. `None` if all targets are equal.
    pub r2: Option<f64>,
    /// e to the mean loss of a `next_token` model.
    pub perplexity: Option<f64>,
}

impl Measures {
    /// The measures there are, with the names of their metrics.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, f64)> {
        let Self { top_5, auc, rmse, mae, r2, perplexity } = *self;
        let all =
            [("top_5", top_5), ("auc", auc), ("rmse", rmse), ("mae", mae), ("r2", r2), ("perplexity", perplexity)];
        all.into_iter().filter_map(|(name, value)| Some((name, value?)))
    }
}

/// The state of a model and its optimizer between two steps, in the flat vector's order.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LearnerState {
    pub(super) values: Vec<f32>,
    /// The optimizer's vectors, each as long as `values`; empty before it has any.
    pub(super) moments: Vec<Vec<f32>>,
    /// Number of steps taken.
    pub(super) steps: u64,
    /// The factor on a loss in 16 bits, and the steps since it changed.
    pub(super) scale: Option<(f64, u32)>,
}

/// Result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepResult {
    Taken,
    /// The gradient overflowed 16 bits: the loss scale is reduced from now on.
    #[cfg(feature = "candle")]
    Skipped,
}

/// A model on its device. The examples were checked against the model; `chosen` are indices of examples, except in
/// steps at most as many as the learner was created for.
pub(super) trait Learner {
    /// Takes a gradient step with this learning rate on the chosen examples, any number of them, in chunks of the
    /// learner's size; scores them with the parameters before the step.
    fn step(&mut self, examples: &Examples<'_>, chosen: &[usize], rate: f32)
    -> Result<(Score, StepResult), TrainError>;
    /// The flat gradient of the chosen examples' mean loss, in layout order. What it holds of tensors that do not train
    /// ([`Self::train_only`]) is unspecified.
    fn gradient(&mut self, examples: &Examples<'_>, chosen: &[usize]) -> Result<(Score, Vec<f32>), TrainError>;
    /// Scores the chosen examples.
    fn score(&mut self, examples: &Examples<'_>, chosen: &[usize]) -> Result<Score, TrainError>;
    /// Scores of each class for each prediction of the chosen examples: by example, then position, then class.
    fn logits(&mut self, examples: &Examples<'_>, chosen: &[usize]) -> Result<Vec<f32>, TrainError>;
    /// Ends later steps with [`TrainError::Interrupted`] if the interrupt is due. Learners with short steps ignore it.
    fn interrupt_by(&mut self, _interrupt: Interrupt) {}
    /// Constraints from the next step on.
    fn constrain(&mut self, constraints: &Flat<'_>) -> Result<(), TrainError>;
    /// Before the first step: these tensors train, in layout order, and the others keep their values. Learners may leave
    /// out what only gradients of the others need; by default they compute all.
    fn train_only(&mut self, _trains: &[bool]) {}
    /// Replaces the flat parameters, between gradients. Those of tensors that do not train are the same as before.
    fn set_values(&mut self, values: &[f32]) -> Result<(), TrainError> {
        self.restore(&LearnerState { values: values.to_vec(), moments: Vec::new(), steps: 0, scale: None })
    }
    /// The flat parameters, in layout order.
    fn values(&self) -> Result<Vec<f32>, TrainError>;
    /// The state between two steps.
    fn state(&self) -> Result<LearnerState, TrainError>;
    /// Goes on from a state of the same model and plan.
    fn restore(&mut self, state: &LearnerState) -> Result<(), TrainError>;
}
