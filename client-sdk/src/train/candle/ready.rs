//! The ready models on candle.

use candle_core::{D, DType, Device, Tensor};
use candle_nn::loss::cross_entropy;
use candle_nn::ops::log_softmax;
use task_spec::TrainingPlan;

use super::forward;
use super::gradients::flat;
use super::variables::{Variables, element};
use crate::models::Architecture;
use crate::train::constraints::Flat;
use crate::train::error::TrainError;
use crate::train::examples::Examples;
use crate::train::learner::{Learner, LearnerState, Score, StepResult};

/// A model on a candle device, ready to train.
pub(in crate::train) struct CandleLearner<'a> {
    architecture: &'a Architecture,
    device: &'a Device,
    variables: Variables<'a>,
    /// Element type of the passes.
    dtype: DType,
    /// Maximum number of examples to compute at once.
    batch: usize,
}

impl<'a> CandleLearner<'a> {
    pub(in crate::train) fn new(
        architecture: &'a Architecture,
        start: &[f32],
        plan: &'a TrainingPlan,
        device: &'a Device,
        batch: usize,
    ) -> Result<Self, TrainError> {
        let layout = architecture.layout().map_err(TrainError::from)?;
        let variables = Variables::new(&layout, start, plan, device)?;
        Ok(Self { architecture, device, variables, dtype: element(plan.precision), batch })
    }

    /// Logits and targets of the chosen examples.
    fn forward(&self, examples: &Examples<'_>, chosen: &[usize]) -> Result<(Tensor, Tensor), TrainError> {
        let (input, targets) = match *examples {
            Examples::Labelled { features, labels, width } => {
                let rows = gather(features, chosen, width);
                let labels = gather(labels, chosen, 1);
                (Tensor::from_vec(rows, (chosen.len(), width), self.device)?.to_dtype(self.dtype)?, labels)
            }
            Examples::Text { inputs, targets, length } => {
                let rows = gather(inputs, chosen, length);
                let targets = gather(targets, chosen, length);
                (Tensor::from_vec(rows, (chosen.len(), length), self.device)?, targets)
            }
            Examples::Tensors { .. } => {
                return Err(TrainError::WrongKind { kind: "ready", needs: "rows or characters" });
            }
        };
        let count = targets.len();
        let targets = Tensor::from_vec(targets, count, self.device)?;
        let parameters = self.variables.tensors().iter().map(|parameter| parameter.as_tensor().to_dtype(self.dtype));
        let parameters: Vec<Tensor> = parameters.collect::<Result<_, _>>()?;
        let logits = forward::logits(self.architecture, &parameters, &input)?;
        Ok((logits.to_dtype(DType::F32)?, targets))
    }

    /// The gradients of a step's examples, in chunks, unscaled.
    fn gradients(&self, examples: &Examples<'_>, chosen: &[usize]) -> Result<(Score, Vec<Option<Tensor>>), TrainError> {
        self.variables.gradients(chosen, self.batch, &mut |chunk| {
            let (logits, targets) = self.forward(examples, chunk)?;
            Ok((cross_entropy(&logits, &targets)?, targets.elem_count()))
        })
    }
}

impl Learner for CandleLearner<'_> {
    fn step(
        &mut self,
        examples: &Examples<'_>,
        chosen: &[usize],
        rate: f32,
    ) -> Result<(Score, StepResult), TrainError> {
        let (score, gradients) = self.gradients(examples, chosen)?;
        Ok((score, self.variables.step(gradients, rate)?))
    }

    fn gradient(&mut self, examples: &Examples<'_>, chosen: &[usize]) -> Result<(Score, Vec<f32>), TrainError> {
        let (score, gradients) = self.gradients(examples, chosen)?;
        Ok((score, flat(self.variables.tensors(), &gradients)?))
    }

    fn score(&mut self, examples: &Examples<'_>, chosen: &[usize]) -> Result<Score, TrainError> {
        let (logits, targets) = self.forward(examples, chosen)?;
        let logits = logits.detach();
        let right = log_softmax(&logits, D::Minus1)?.gather(&targets.unsqueeze(1)?, 1)?;
        let loss = -f64::from(right.sum_all()?.to_scalar::<f32>()?);
        let hits = logits.argmax(D::Minus1)?.eq(&targets)?.to_dtype(DType::U32)?.to_vec1::<u32>()?;
        let correct = hits.iter().map(|&hit| u64::from(hit)).sum();
        Ok(Score { loss, correct, predictions: hits.len() as u64 })
    }

    fn logits(&mut self, examples: &Examples<'_>, chosen: &[usize]) -> Result<Vec<f32>, TrainError> {
        let (logits, _) = self.forward(examples, chosen)?;
        Ok(logits.detach().flatten_all()?.to_vec1()?)
    }

    fn constrain(&mut self, constraints: &Flat<'_>) -> Result<(), TrainError> {
        self.variables.constrain(constraints)
    }

    fn values(&self) -> Result<Vec<f32>, TrainError> {
        self.variables.values()
    }

    fn state(&self) -> Result<LearnerState, TrainError> {
        self.variables.state()
    }

    fn restore(&mut self, state: &LearnerState) -> Result<(), TrainError> {
        self.variables.restore(state)
    }
}

/// The chosen rows of a matrix.
fn gather<T: Copy>(rows: &[T], chosen: &[usize], width: usize) -> Vec<T> {
    chosen.iter().flat_map(|&row| &rows[row * width..][..width]).copied().collect()
}
