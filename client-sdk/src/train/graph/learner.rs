//! A graph in training: the executor with the optimizer of the ready models.

use std::ops::Range;
use std::sync::Arc;

use graph::GraphModel;
use task_spec::TrainingPlan;

use super::context::Statistics;
use super::examples::{ChosenTargets, feed, point};
use super::executor::{ExecutionError, Executor};
use super::loss;
use super::statistics::RunningStatistics;
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
    /// Positions of each tensor that trains among the flat parameters.
    trained: Vec<Range<usize>>,
    /// Maximum number of examples in a chunk.
    batch: usize,
    targets: ChosenTargets,
    /// Gradient of the output.
    delta: Vec<f32>,
    running: RunningStatistics,
}

impl GraphLearner {
    /// The graph with these parameters, for chunks of at most `batch` examples.
    pub(in crate::train) fn new(model: &Arc<GraphModel>, start: &[f32], plan: &TrainingPlan, batch: usize) -> Self {
        let trained = ranges(model);
        let places = trained.iter().map(|range| TensorPosition::Plain { start: range.start, length: range.len() });
        let (places, size) = (places.collect(), trained.last().map_or(0, |range| range.end));
        let mut learner = Self {
            model: Arc::clone(model),
            executor: Executor::new(Arc::clone(model)),
            core: Core::new(places, size, start, plan),
            trained,
            batch,
            targets: ChosenTargets::default(),
            delta: Vec::new(),
            running: RunningStatistics::new(model.graph()),
        };
        if !learner.running.is_empty() {
            learner.constrain_by(&Flat::default());
        }
        learner
    }

    /// Constrains the optimizer, which leaves running statistics alone.
    fn constrain_by(&mut self, constraints: &Flat<'_>) {
        let Flat { anchor, free, correction } = constraints;
        let free = self.running.constrain(free);
        self.core.constrain(&Flat { anchor: *anchor, free, correction: *correction });
    }

    /// Computes the outputs of the chosen examples; in training, which has a seed of dropout, by the statistics of the batch.
    fn forward(&mut self, examples: &Examples<'_>, chosen: &[usize], dropout: Option<u64>) -> Result<(), TrainError> {
        self.executor.prepare(point(examples, chosen.len())).map_err(TrainError::Graph)?;
        feed(self.executor.inputs(), examples, chosen);
        self.executor.set_parameters(&self.core.parameters);
        self.executor.normalize_by(if dropout.is_some() { Statistics::Batch } else { Statistics::Running });
        self.executor.forward(dropout).map_err(failed)
    }
}

/// The seed of dropout in a step, given the number of steps before it: repeated by a training that goes on from the step's state.
pub(super) fn dropout_seed(steps: u64, chosen: &[usize]) -> u64 {
    let mixed =
        |seed: u64, example: &usize| (seed ^ *example as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    chosen.iter().fold(steps, mixed)
}

/// Positions of each tensor among the flat parameters.
fn ranges(model: &GraphModel) -> Vec<Range<usize>> {
    let mut first = 0;
    let range = |shape: &[u32]| {
        let start = first;
        first += shape.iter().map(|&size| size as usize).product::<usize>();
        start..first
    };
    model.graph().parameters.iter().map(|parameter| &parameter.shape[..]).map(range).collect()
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
        self.forward(examples, chosen, Some(dropout_seed(self.core.steps(), chosen)))?;
        let output = self.model.output();
        let values = self.executor.value(output);
        self.delta.resize(values.len(), 0.0);
        let score = loss::score(self.model.loss(), values, self.targets.take(examples, chosen), &mut self.delta);
        if !score.loss.is_finite() {
            let cause = self.executor.first_not_finite();
            return Err(TrainError::Execution(cause.unwrap_or_else(|| "the loss is not finite".to_owned())));
        }
        self.executor.backward(output, &self.delta, &mut self.core.gradient).map_err(failed)?;
        self.running.add(&self.executor);
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
        self.running.begin(&self.core.parameters);
        let taken = step(self, examples, chosen, rate)?;
        self.running.end(&mut self.core.parameters);
        Ok(taken)
    }

    fn gradient(&mut self, examples: &Examples<'_>, chosen: &[usize]) -> Result<(Score, Vec<f32>), TrainError> {
        self.running.begin(&self.core.parameters);
        let score = gradient(self, examples, chosen)?;
        // Memory of the other tensors is never touched.
        let mut flat = vec![0.0; self.core.gradient.len()];
        for range in &self.trained {
            flat[range.clone()].copy_from_slice(&self.core.gradient[range.clone()]);
        }
        Ok((score, flat))
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
        self.constrain_by(constraints);
        if !constraints.free.is_empty() {
            let trains = |range: &Range<usize>| constraints.free[range.clone()].iter().any(|&factor| factor != 0.0);
            let mut trains: Vec<_> = ranges(&self.model).iter().map(trains).collect();
            // Steps move running statistics without the optimizer.
            for layer in self.model.graph().batch_statistics() {
                trains[layer.mean] = true;
                trains[layer.variance] = true;
            }
            self.train_only(&trains);
        }
        Ok(())
    }

    fn train_only(&mut self, trains: &[bool]) {
        let pairs = ranges(&self.model).into_iter().zip(trains);
        self.trained = pairs.filter_map(|(range, trains)| trains.then_some(range)).collect();
        self.executor.train_only(trains.to_vec());
    }

    fn set_values(&mut self, values: &[f32]) -> Result<(), TrainError> {
        for range in &self.trained {
            self.core.parameters[range.clone()].copy_from_slice(&values[range.clone()]);
        }
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
        self.executor.reset();
        Ok(())
    }
}
