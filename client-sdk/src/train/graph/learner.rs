//! A graph in training: the executor with the optimizer of the ready models.

use std::sync::Arc;

use graph::GraphModel;
use task_spec::TrainingPlan;

use super::examples::{ChosenTargets, feed, point};
use super::executor::{ExecutionError, Executor};
use super::loss;
use crate::train::constraints::Flat;
use crate::train::cpu::core::{Core, TensorPosition};
use crate::train::cpu::passes::{Passes, gradient, step};
use crate::train::error::TrainError;
use crate::train::examples::Examples;
use crate::train::learner::{Learner, LearnerState, Score, StepResult};
use crate::trainer::Interrupt;

/// A graph in training or evaluation.
pub(in crate::train) struct GraphLearner {
    model: Arc<GraphModel>,
    executor: Executor,
    core: Core,
    /// Maximum number of examples in a chunk.
    batch: usize,
    targets: ChosenTargets,
    /// Gradient of the output.
    delta: Vec<f32>,
}

impl GraphLearner {
    /// The graph with these parameters, for chunks of at most `batch` examples.
    pub(in crate::train) fn new(model: &Arc<GraphModel>, start: &[f32], plan: &TrainingPlan, batch: usize) -> Self {
        let mut places = Vec::new();
        let mut first = 0;
        for parameter in &model.graph().parameters {
            let length = parameter.shape.iter().map(|&size| size as usize).product();
            places.push(TensorPosition::Plain { start: first, length });
            first += length;
        }
        Self {
            model: Arc::clone(model),
            executor: Executor::new(Arc::clone(model)),
            core: Core::new(places, first, start, plan),
            batch,
            targets: ChosenTargets::default(),
            delta: Vec::new(),
        }
    }

    /// Computes the outputs of the chosen examples.
    fn forward(&mut self, examples: &Examples<'_>, chosen: &[usize], dropout: Option<u64>) -> Result<(), TrainError> {
        self.executor.prepare(point(examples, chosen.len())).map_err(TrainError::Graph)?;
        feed(&mut self.executor, examples, chosen);
        self.executor.set_parameters(&self.core.parameters);
        self.executor.forward(dropout).map_err(failed)
    }

    /// The seed of dropout in a step: repeated by a training that goes on from the step's state.
    fn seed(&self, chosen: &[usize]) -> u64 {
        let mixed =
            |seed: u64, example: &usize| (seed ^ *example as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        chosen.iter().fold(self.core.steps(), mixed)
    }
}

fn failed(error: ExecutionError) -> TrainError {
    match error {
        ExecutionError::Interrupted => TrainError::Interrupted,
        ExecutionError::Node { .. } => TrainError::Execution(error.to_string()),
    }
}

impl Passes for GraphLearner {
    fn core(&mut self) -> &mut Core {
        &mut self.core
    }

    fn most(&self) -> usize {
        self.batch
    }

    fn backward(&mut self, examples: &Examples<'_>, chosen: &[usize]) -> Result<Score, TrainError> {
        self.forward(examples, chosen, Some(self.seed(chosen)))?;
        let output = self.model.output();
        let values = self.executor.value(output);
        self.delta.resize(values.len(), 0.0);
        let score = loss::score(self.model.loss(), values, self.targets.take(examples, chosen), &mut self.delta);
        if !score.loss.is_finite() {
            let cause = self.executor.first_not_finite();
            return Err(TrainError::Execution(cause.unwrap_or_else(|| "the loss is not finite".to_owned())));
        }
        self.executor.backward(output, &self.delta, &mut self.core.gradient).map_err(failed)?;
        Ok(score)
    }
}

impl Learner for GraphLearner {
    fn step(
        &mut self,
        examples: &Examples<'_>,
        chosen: &[usize],
        rate: f32,
    ) -> Result<(Score, StepResult), TrainError> {
        step(self, examples, chosen, rate)
    }

    fn gradient(&mut self, examples: &Examples<'_>, chosen: &[usize]) -> Result<(Score, Vec<f32>), TrainError> {
        let score = gradient(self, examples, chosen)?;
        Ok((score, self.core.flat_gradient()))
    }

    fn score(&mut self, examples: &Examples<'_>, chosen: &[usize]) -> Result<Score, TrainError> {
        self.forward(examples, chosen, None)?;
        let values = self.executor.value(self.model.output());
        Ok(loss::score(self.model.loss(), values, self.targets.take(examples, chosen), &mut []))
    }

    fn logits(&mut self, examples: &Examples<'_>, chosen: &[usize]) -> Result<Vec<f32>, TrainError> {
        self.forward(examples, chosen, None)?;
        Ok(self.executor.value(self.model.output()).to_vec())
    }

    fn interrupt_by(&mut self, interrupt: Interrupt) {
        self.executor.interrupt_by(interrupt);
    }

    fn constrain(&mut self, constraints: &Flat<'_>) -> Result<(), TrainError> {
        self.core.constrain(constraints);
        Ok(())
    }

    fn values(&self) -> Result<Vec<f32>, TrainError> {
        Ok(self.core.flat_parameters())
    }

    fn state(&self) -> Result<LearnerState, TrainError> {
        Ok(self.core.state())
    }

    fn restore(&mut self, state: &LearnerState) -> Result<(), TrainError> {
        self.core.restore(state);
        Ok(())
    }
}
